// lock.h - many readers, each with a gate of its own; one writer, who closes them all.

#ifndef SPINNEY_LOCK_H
#define SPINNEY_LOCK_H

#include <pthread.h>

#include "memory.h"

// A reader touches only its own cache line and reads one that seldom changes: so readers do not slow each other down.
typedef struct spinney_gate {
  char before[SPINNEY_LINE_BYTES];
  atomic_bool reading;
  char after[SPINNEY_LINE_BYTES - sizeof(atomic_bool)];
  struct spinney_gate *next;
} spinney_gate;

// Lock order: mutex, then every gate. A reader holds its gate only, or waits for the mutex with its gate open.
typedef struct spinney_lock {
  pthread_mutex_t mutex;  // held by the writer
  atomic_bool writing;    // true only while the mutex is held
  spinney_gate *gates;    // changed by writers
} spinney_lock;

bool spinney_lock_init(spinney_lock *lock);
void spinney_lock_free(spinney_lock *lock);

void spinney_lock_write(spinney_lock *lock);
void spinney_unlock_write(spinney_lock *lock);
void spinney_lock_read(spinney_lock *lock, spinney_gate *gate);
void spinney_unlock_read(spinney_gate *gate);

// To be called by a writer.
void spinney_gate_join(spinney_lock *lock, spinney_gate *gate);
void spinney_gate_part(spinney_lock *lock, spinney_gate *gate);

#endif
