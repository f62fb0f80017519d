/* The keys of a store server: set once, never removed, bounded in bytes. */
#ifndef ORIEL_CORE_STORE_TABLE_H
#define ORIEL_CORE_STORE_TABLE_H

#include "core/store/codec.h"

typedef struct oriel_store_table oriel_store_table;

/* NULL when memory is short. `limit` counts keys, values and what it takes to
 * keep them. */
oriel_store_table *oriel_store_table_create(size_t limit);
void oriel_store_table_destroy(oriel_store_table *table);

/* Takes the key and the value of `request`. */
enum oriel_message_answer oriel_store_table_set(oriel_store_table *table,
                                                const oriel_message *request);
/* 1 when the key of `request` is there. The value stays where it is for as long
 * as the table lives. */
int oriel_store_table_get(const oriel_store_table *table, const oriel_message *request,
                          const uint8_t **value_p, size_t *len_p);

#endif
