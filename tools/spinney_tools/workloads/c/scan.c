// scan.c - the naive scan: every subscription, predicate by predicate, leaving at the first that fails.
// It is the oracle, exact by construction, and the baseline of all ratios.

#include "kit.h"

size_t kit_scan(const kit_workload *workload, size_t event, uint32_t *ids) {
  const double *value = workload->values + event * workload->n_attributes;
  const uint32_t *first = workload->first;
  const uint8_t *attribute = workload->attribute;
  const double *low = workload->low, *high = workload->high;
  const size_t n = workload->n_subscriptions;
  size_t found = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t j = first[i], end = first[i + 1];
    for (; j < end; j++) {
      double x = value[attribute[j]];
      if (!((x >= low[j]) & (x <= high[j]))) break;
    }
    ids[found] = (uint32_t)i;
    found += j == end;
  }
  return found;
}
