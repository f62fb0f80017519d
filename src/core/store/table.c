#include "core/store/table.h"

#include <string.h>

#include "base/hash.h"
#include "base/sys.h"

enum { BUCKETS = 4096 };

struct entry {
    struct entry *next; /* in the same bucket */
    uint64_t hash;      /* of the key */
    size_t key_len;     /* of `bytes` */
    size_t value_len;   /* of `bytes`, behind the key */
    uint8_t bytes[];    /* key, then value */
};

struct oriel_store_table {
    size_t limit;                   /* bytes it may hold */
    size_t used;                    /* bytes it holds, with the entries' heads */
    struct entry *buckets[BUCKETS]; /* by the hash's lowest bits */
};

oriel_store_table *oriel_store_table_create(size_t limit)
{
    oriel_store_table *table = oriel_sys_now->alloc(sizeof(*table));

    if (table != NULL)
        table->limit = limit;
    return table;
}

void oriel_store_table_destroy(oriel_store_table *table)
{
    if (table == NULL)
        return;
    for (int i = 0; i < BUCKETS; i++) {
        while (table->buckets[i] != NULL) {
            struct entry *entry = table->buckets[i];

            table->buckets[i] = entry->next;
            oriel_sys_now->release(entry);
        }
    }
    oriel_sys_now->release(table);
}

/* The keys come from peers that proved the secret, so nobody picks them to collide. */
static uint64_t hash_key(const oriel_message *request)
{
    return oriel_hash(request->key, request->key_len, 0);
}

static struct entry *find(const oriel_store_table *table, const oriel_message *request,
                          uint64_t hash)
{
    struct entry *entry = table->buckets[hash % BUCKETS];

    while (entry != NULL && (entry->hash != hash || entry->key_len != request->key_len ||
                             memcmp(entry->bytes, request->key, request->key_len) != 0))
        entry = entry->next;
    return entry;
}

static int same_value(const struct entry *entry, const oriel_message *request)
{
    return entry->value_len == request->value_len &&
           memcmp(entry->bytes + entry->key_len, request->value, request->value_len) == 0;
}

enum oriel_message_answer oriel_store_table_set(oriel_store_table *table,
                                                const oriel_message *request)
{
    uint64_t hash = hash_key(request);
    struct entry *entry = find(table, request, hash);
    size_t bytes = sizeof(*entry) + request->key_len + request->value_len;

    if (entry != NULL)
        return same_value(entry, request) ? ORIEL_ANSWER_OK : ORIEL_ANSWER_CONFLICT;
    if (bytes > table->limit - table->used)
        return ORIEL_ANSWER_FULL;
    entry = oriel_sys_now->alloc(bytes);
    if (entry == NULL)
        return ORIEL_ANSWER_FULL;

    entry->hash = hash;
    entry->key_len = request->key_len;
    entry->value_len = request->value_len;
    memcpy(entry->bytes, request->key, request->key_len);
    memcpy(entry->bytes + request->key_len, request->value, request->value_len);
    entry->next = table->buckets[hash % BUCKETS];
    table->buckets[hash % BUCKETS] = entry;
    table->used += bytes;
    return ORIEL_ANSWER_OK;
}

int oriel_store_table_get(const oriel_store_table *table, const oriel_message *request,
                          const uint8_t **value_p, size_t *len_p)
{
    const struct entry *entry = find(table, request, hash_key(request));

    if (entry == NULL)
        return 0;
    *value_p = entry->bytes + entry->key_len;
    *len_p = entry->value_len;
    return 1;
}
