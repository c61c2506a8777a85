// lock.c - many readers, one writer.
//
// A reader raises its flag and then looks for a writer; a writer raises its own and then looks at the readers'. Both in
// the one order of sequentially consistent operations, so at least one of them sees the other.

#include "lock.h"

#include <sched.h>

bool spinney_lock_init(spinney_lock *lock) {
  atomic_init(&lock->writing, false);
  lock->gates = NULL;
  return !pthread_mutex_init(&lock->mutex, NULL);
}

void spinney_lock_free(spinney_lock *lock) { pthread_mutex_destroy(&lock->mutex); }

void spinney_lock_write(spinney_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
  atomic_store(&lock->writing, true);
  for (spinney_gate *gate = lock->gates; gate; gate = gate->next)
    while (atomic_load(&gate->reading)) sched_yield();
}

void spinney_unlock_write(spinney_lock *lock) {
  atomic_store_explicit(&lock->writing, false, memory_order_release);
  pthread_mutex_unlock(&lock->mutex);
}

void spinney_lock_read(spinney_lock *lock, spinney_gate *gate) {
  atomic_store(&gate->reading, true);
  if (!atomic_load(&lock->writing)) return;
  atomic_store(&gate->reading, false);
  pthread_mutex_lock(&lock->mutex);  // waits for the writer; the next one will see the flag
  atomic_store(&gate->reading, true);
  pthread_mutex_unlock(&lock->mutex);
}

void spinney_unlock_read(spinney_gate *gate) { atomic_store_explicit(&gate->reading, false, memory_order_release); }

void spinney_gate_join(spinney_lock *lock, spinney_gate *gate) {
  atomic_init(&gate->reading, false);
  gate->next = lock->gates;
  lock->gates = gate;
}

void spinney_gate_part(spinney_lock *lock, spinney_gate *gate) {
  spinney_gate **at = &lock->gates;
  while (*at != gate) at = &(*at)->next;
  *at = gate->next;
}
