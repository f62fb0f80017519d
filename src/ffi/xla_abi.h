/* The part of XLA's FFI C ABI that oriel uses, declared here so that building
 * needs no JAX. It is stable: structs carry their size, fields are only added.
 * tests/jax checks these offsets against the header of the jaxlib at hand.
 * Version 0.3 is what jaxlib 0.10.0 speaks; newer ones accept it. */
#ifndef ORIEL_FFI_XLA_ABI_H
#define ORIEL_FFI_XLA_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { XLA_API_MAJOR = 0, XLA_API_MINOR = 3 };
enum { XLA_EXTENSION_METADATA = 1 };
enum { XLA_STAGE_INSTANTIATE = 0 };
enum { XLA_TRAIT_COMMAND_BUFFER = 1 }; /* execute may be captured in a graph */
enum xla_attr_type { XLA_ATTR_ARRAY = 1, XLA_ATTR_SCALAR = 3 };
enum xla_error_code {
    XLA_INVALID_ARGUMENT = 3,
    XLA_DEADLINE_EXCEEDED = 4,
    XLA_RESOURCE_EXHAUSTED = 8,
    XLA_FAILED_PRECONDITION = 9,
    XLA_ABORTED = 10,
    XLA_INTERNAL = 13,
    XLA_UNAVAILABLE = 14,
};
enum xla_dtype {
    XLA_PRED = 1,
    XLA_S8 = 2,
    XLA_S16 = 3,
    XLA_S32 = 4,
    XLA_S64 = 5,
    XLA_U8 = 6,
    XLA_U16 = 7,
    XLA_U32 = 8,
    XLA_U64 = 9,
    XLA_F16 = 10,
    XLA_F32 = 11,
    XLA_F64 = 12,
    XLA_C64 = 15,
    XLA_BF16 = 16,
    XLA_TOKEN = 17,
    XLA_C128 = 18,
    XLA_F8E5M2 = 19,
    XLA_F8E4M3FN = 20,
};

typedef struct xla_error xla_error;
typedef struct xla_context xla_context;
typedef struct xla_future xla_future;

typedef struct xla_extension {
    size_t struct_size;
    int type;
    struct xla_extension *next;
} xla_extension;

typedef struct xla_version {
    size_t struct_size;
    xla_extension *extension;
    int major;
    int minor;
} xla_version;

typedef struct xla_metadata {
    size_t struct_size;
    xla_version version;
    uint32_t traits;
    int64_t state_type_id;
} xla_metadata;

typedef struct xla_metadata_extension {
    xla_extension base;
    xla_metadata *metadata;
} xla_metadata_extension;

typedef struct xla_type_info {
    size_t struct_size;
    xla_extension *extension;
    void (*deleter)(void *object);
} xla_type_info;

typedef struct xla_buffer {
    size_t struct_size;
    xla_extension *extension;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} xla_buffer;

typedef struct xla_span {
    const char *ptr;
    size_t len;
} xla_span;

typedef struct xla_scalar {
    int dtype;
    void *value;
} xla_scalar;

typedef struct xla_array {
    int dtype;
    size_t size;
    void *data;
} xla_array;

typedef struct xla_buffers {
    size_t struct_size;
    xla_extension *extension;
    int64_t size;
    int *types;
    void **items; /* xla_buffer * */
} xla_buffers;

typedef struct xla_attrs {
    size_t struct_size;
    xla_extension *extension;
    int64_t size;
    int *types;
    xla_span **names;
    void **items;
} xla_attrs;

typedef struct xla_error_args {
    size_t struct_size;
    xla_extension *extension;
    const char *message;
    int code;
} xla_error_args;

typedef struct xla_destroy_args {
    size_t struct_size;
    xla_extension *extension;
    xla_error *error;
} xla_destroy_args;

/* State_Set and State_Get share one layout. */
typedef struct xla_state_args {
    size_t struct_size;
    xla_extension *extension;
    xla_context *ctx;
    int stage;
    int64_t *type_id;
    void *state;
} xla_state_args;

typedef struct xla_future_args {
    size_t struct_size;
    xla_extension *extension;
    xla_future *future;
    xla_error *error; /* SetError alone */
} xla_future_args;

typedef struct xla_run_id_args {
    size_t struct_size;
    xla_extension *extension;
    xla_context *ctx;
    int64_t run_id;
} xla_run_id_args;

typedef struct xla_ordinal_args {
    size_t struct_size;
    xla_extension *extension;
    xla_context *ctx;
    int32_t ordinal;
} xla_ordinal_args;

typedef struct xla_stream_args {
    size_t struct_size;
    xla_extension *extension;
    xla_context *ctx;
    void *stream;
} xla_stream_args;

/* ---- extensions of a call: each has a version of its own ------------------------------- */

enum { XLA_COLLECTIVES = 129, XLA_COLLECTIVES_MAJOR = 0 };
enum { XLA_GROUP_FLATTENED_ID = 3 };

typedef struct xla_call_extension {
    size_t struct_size;
    int64_t type;
    int32_t major, minor;
    const struct xla_call_extension *next;
} xla_call_extension;

typedef struct xla_find_args {
    size_t struct_size;
    xla_extension *extension;
    xla_context *ctx;
    int64_t type;
    const xla_call_extension *found; /* out */
} xla_find_args;

/* Devices by their position in the program's list. */
typedef struct xla_replica_group {
    const int64_t *ids;
    size_t size;
} xla_replica_group;

/* Communicator_Request and _Get share one layout; the first stops before the last field. */
typedef struct xla_communicator_args {
    size_t struct_size;
    xla_extension *extension;
    int group_mode;
    const xla_replica_group *groups;
    size_t num_groups;
    int64_t id;
    void *communicator; /* out: ncclComm_t */
} xla_communicator_args;

/* Version 0.1; 0.2 goes on with windows. */
typedef struct xla_collectives {
    xla_call_extension base;
    void *state;
    xla_error *(*request)(const struct xla_collectives *, xla_communicator_args *);
    xla_error *(*get)(const struct xla_collectives *, xla_communicator_args *);
} xla_collectives;

typedef struct xla_api {
    size_t struct_size;
    xla_extension *extension;
    xla_version version;
    const void *internal;
    xla_error *(*error_create)(xla_error_args *);
    void *error_details;
    void (*error_destroy)(xla_destroy_args *);
    void *handler_register;
    xla_error *(*stream_get)(xla_stream_args *);
    void *type_register;
    void *context_get;
    xla_error *(*state_set)(xla_state_args *);
    xla_error *(*state_get)(xla_state_args *);
    void *memory_allocate;
    void *memory_free;
    void *pool_schedule;
    void *pool_threads;
    xla_error *(*future_create)(xla_future_args *);
    xla_error *(*future_set_available)(xla_future_args *);
    xla_error *(*future_set_error)(xla_future_args *);
    xla_error *(*run_id_get)(xla_run_id_args *);
    xla_error *(*ordinal_get)(xla_ordinal_args *);
    /* From 0.4 on: struct_size says whether it is there. */
    xla_error *(*find_extension)(xla_find_args *);
} xla_api;

typedef struct xla_frame {
    size_t struct_size;
    xla_extension *extension;
    const xla_api *api;
    xla_context *ctx;
    int stage;
    xla_buffers args;
    xla_buffers rets;
    xla_attrs attrs;
    xla_future *future;
} xla_frame;

#endif
