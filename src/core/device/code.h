/* The kernels of a device: compiled by NVRTC for its architecture when a process first
 * needs them, kept on disk by content and compiler, loaded whole. Loading later could deadlock: it
 * may wait for kernels of the context, and those for the rank that loads. */
#ifndef ORIEL_CORE_DEVICE_CODE_H
#define ORIEL_CORE_DEVICE_CODE_H

#include "core/device/layout.h"
#include "fabric/cuda/memory.h"

typedef struct oriel_device_code {
    cu_function copy[DEVICE_FAMILIES]; /* calls that only move data */
    cu_function ragged;                /* ragged_all_to_all */
    cu_function begin, end;            /* of a person's kernel ... */
    cu_function far_begin, far_end;    /* ... on a group that spans machines */
    cu_function meet, judge;           /* before and after a call of another library */
    cu_function span_begin, span_compare, span_pick; /* calls that span machines: see span.cuh */
    /* NULL: the family has none for this dtype, or the kernel of another serves. */
    cu_function reduce[DEVICE_FAMILIES][ORIEL_DTYPE_COUNT][ORIEL_REDOP_COUNT];
} oriel_device_code;

/* Local: stays loaded for the life of the process. */
oriel_status oriel_device_code_load(const oriel_gpu *gpu, const oriel_device_code **code_p);

enum { DEVICE_PARTS = 7 };
/* Compiles one part, without any device. *cubin_p is the caller's to release. */
oriel_status oriel_device_code_compile(int part, int arch, void **cubin_p, size_t *bytes_p);
/* The file that keeps it, by everything it depends on. `version` of NVRTC; "": the last that
 * was made, for a process that finds no NVRTC. */
void oriel_device_code_name(int part, int arch, const char *version, char *path, size_t len);

#endif
