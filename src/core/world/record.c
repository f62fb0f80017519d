#include "core/world/record.h"

#include <stdio.h>
#include <string.h>

#include "base/types.h"

const char *oriel_kind_name(uint32_t kind)
{
    static const char *const names[ORIEL_KIND_COUNT] = {
        [ORIEL_KIND_ALL_REDUCE] = "all_reduce",
        [ORIEL_KIND_ALL_GATHER] = "all_gather",
        [ORIEL_KIND_REDUCE_SCATTER] = "reduce_scatter",
        [ORIEL_KIND_ALL_TO_ALL] = "all_to_all",
        [ORIEL_KIND_BROADCAST] = "broadcast",
        [ORIEL_KIND_PERMUTE] = "permute",
        [ORIEL_KIND_BARRIER] = "barrier",
        [ORIEL_KIND_RAGGED_ALL_TO_ALL] = "ragged_all_to_all",
        [ORIEL_KIND_GATHER] = "gather",
        [ORIEL_KIND_SCATTER] = "scatter",
        [ORIEL_KIND_REDUCE] = "reduce",
        [ORIEL_KIND_SCAN] = "scan",
        [ORIEL_KIND_KERNEL] = "kernel",
        [ORIEL_KIND_MESSAGE] = "message",
    };

    return kind < ORIEL_KIND_COUNT && names[kind] != NULL ? names[kind] : "unknown operation";
}

/* The kinds that take lists have a small shape of their own. */
static int is_list(const oriel_record *record)
{
    int takes = record->kind == ORIEL_KIND_ALL_REDUCE || record->kind == ORIEL_KIND_ALL_GATHER ||
                record->kind == ORIEL_KIND_REDUCE_SCATTER || record->kind == ORIEL_KIND_BROADCAST;

    return takes && record->shape >> 16 != 0;
}

static void describe_list(const oriel_record *record, char *out, size_t len)
{
    oriel_record one = *record;
    size_t used;

    one.shape &= 0xffff;
    oriel_record_describe(&one, out, len);
    used = strlen(out);
    snprintf(out + used, len - used, " in %u arrays (counts %08x)",
             (unsigned)(record->shape >> 16 & 0xffff), (unsigned)(record->shape >> 32));
}

void oriel_record_describe(const oriel_record *record, char *out, size_t len)
{
    const char *kind = oriel_kind_name(record->kind);
    const char *dtype = oriel_dtype_name((oriel_dtype)record->dtype);
    const char *redop = oriel_redop_name((oriel_redop)record->redop);
    unsigned long long bytes = record->bytes;
    unsigned long long shape = record->shape;

    if (is_list(record)) {
        describe_list(record, out, len);
        return;
    }
    switch (record->kind) {
    case ORIEL_KIND_ALL_REDUCE:
    case ORIEL_KIND_REDUCE_SCATTER:
        snprintf(out, len, "%s %s of %llu bytes of %s%s%s", kind, redop, bytes, dtype,
                 shape != ORIEL_VIA_AUTO ? " via " : "",
                 shape != ORIEL_VIA_AUTO ? oriel_via_name((oriel_via)shape) : "");
        break;
    case ORIEL_KIND_REDUCE:
        snprintf(out, len, "%s %s of %llu bytes of %s to root %llu", kind, redop, bytes, dtype,
                 shape);
        break;
    case ORIEL_KIND_SCAN:
        snprintf(out, len, "%s %s of %llu bytes of %s", kind, redop, bytes, dtype);
        break;
    case ORIEL_KIND_GATHER:
        snprintf(out, len, "%s of %llu bytes of %s to root %llu", kind, bytes, dtype, shape);
        break;
    case ORIEL_KIND_BROADCAST:
    case ORIEL_KIND_SCATTER:
        snprintf(out, len, "%s of %llu bytes of %s from root %llu", kind, bytes, dtype, shape);
        break;
    case ORIEL_KIND_PERMUTE:
        snprintf(out, len, "%s of %llu bytes of %s by permutation %016llx", kind, bytes, dtype,
                 shape);
        break;
    case ORIEL_KIND_BARRIER:
        snprintf(out, len, "%s", kind);
        break;
    case ORIEL_KIND_RAGGED_ALL_TO_ALL:
        snprintf(out, len, "%s of rows of %llu bytes of %s in %llu slices for each member", kind,
                 bytes, dtype, shape);
        break;
    default:
        snprintf(out, len, "%s of %llu bytes of %s", kind, bytes, dtype);
    }
}
