/* Compiles only where src/ffi/xla_abi.h has the layout of the jaxlib at hand. */
#include <stddef.h>

#include "xla/ffi/api/c_api.h"

#if __has_include("xla/ffi/api/collectives_c_api.h")
#include "xla/ffi/api/collectives_c_api.h"
#endif

#include "ffi/xla_abi.h"

#define SAME(ours, a, theirs, b)                                                                   \
    _Static_assert(offsetof(ours, a) == offsetof(theirs, b), #ours "." #a);                        \
    _Static_assert(sizeof(((ours *)0)->a) == sizeof(((theirs *)0)->b), #ours "." #a " size")
#define EQUAL(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME(xla_frame, extension, struct XLA_FFI_CallFrame, extension_start);
SAME(xla_frame, api, struct XLA_FFI_CallFrame, api);
SAME(xla_frame, ctx, struct XLA_FFI_CallFrame, ctx);
SAME(xla_frame, stage, struct XLA_FFI_CallFrame, stage);
SAME(xla_frame, args, struct XLA_FFI_CallFrame, args);
SAME(xla_frame, rets, struct XLA_FFI_CallFrame, rets);
SAME(xla_frame, attrs, struct XLA_FFI_CallFrame, attrs);
SAME(xla_frame, future, struct XLA_FFI_CallFrame, future);
SAME(xla_buffers, size, struct XLA_FFI_Args, size);
SAME(xla_buffers, types, struct XLA_FFI_Args, types);
SAME(xla_buffers, items, struct XLA_FFI_Args, args);
SAME(xla_buffers, items, struct XLA_FFI_Rets, rets);
SAME(xla_attrs, types, struct XLA_FFI_Attrs, types);
SAME(xla_attrs, names, struct XLA_FFI_Attrs, names);
SAME(xla_attrs, items, struct XLA_FFI_Attrs, attrs);
SAME(xla_buffer, dtype, struct XLA_FFI_Buffer, dtype);
SAME(xla_buffer, data, struct XLA_FFI_Buffer, data);
SAME(xla_buffer, rank, struct XLA_FFI_Buffer, rank);
SAME(xla_buffer, dims, struct XLA_FFI_Buffer, dims);
SAME(xla_span, len, struct XLA_FFI_ByteSpan, len);
SAME(xla_scalar, value, struct XLA_FFI_Scalar, value);
SAME(xla_array, size, struct XLA_FFI_Array, size);
SAME(xla_array, data, struct XLA_FFI_Array, data);
SAME(xla_metadata, version, struct XLA_FFI_Metadata, api_version);
SAME(xla_metadata, traits, struct XLA_FFI_Metadata, traits);
SAME(xla_metadata, state_type_id, struct XLA_FFI_Metadata, state_type_id);
SAME(xla_metadata_extension, metadata, struct XLA_FFI_Metadata_Extension, metadata);
SAME(xla_version, minor, struct XLA_FFI_Api_Version, minor_version);
SAME(xla_type_info, deleter, struct XLA_FFI_TypeInfo, deleter);
SAME(xla_error_args, message, struct XLA_FFI_Error_Create_Args, message);
SAME(xla_error_args, code, struct XLA_FFI_Error_Create_Args, errc);
SAME(xla_destroy_args, error, struct XLA_FFI_Error_Destroy_Args, error);
SAME(xla_state_args, stage, struct XLA_FFI_State_Set_Args, stage);
SAME(xla_state_args, type_id, struct XLA_FFI_State_Set_Args, type_id);
SAME(xla_state_args, state, struct XLA_FFI_State_Set_Args, state);
SAME(xla_state_args, state, struct XLA_FFI_State_Get_Args, state);
SAME(xla_future_args, future, struct XLA_FFI_Future_Create_Args, future);
SAME(xla_future_args, error, struct XLA_FFI_Future_SetError_Args, error);
SAME(xla_run_id_args, run_id, struct XLA_FFI_RunId_Get_Args, run_id);
SAME(xla_ordinal_args, ordinal, struct XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);
SAME(xla_stream_args, stream, struct XLA_FFI_Stream_Get_Args, stream);
SAME(xla_api, error_create, struct XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(xla_api, error_destroy, struct XLA_FFI_Api, XLA_FFI_Error_Destroy);
SAME(xla_api, stream_get, struct XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME(xla_api, state_set, struct XLA_FFI_Api, XLA_FFI_State_Set);
SAME(xla_api, state_get, struct XLA_FFI_Api, XLA_FFI_State_Get);
SAME(xla_api, future_create, struct XLA_FFI_Api, XLA_FFI_Future_Create);
SAME(xla_api, future_set_available, struct XLA_FFI_Api, XLA_FFI_Future_SetAvailable);
SAME(xla_api, future_set_error, struct XLA_FFI_Api, XLA_FFI_Future_SetError);
SAME(xla_api, run_id_get, struct XLA_FFI_Api, XLA_FFI_RunId_Get);
SAME(xla_api, ordinal_get, struct XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);

EQUAL(XLA_EXTENSION_METADATA, XLA_FFI_Extension_Metadata);
EQUAL(XLA_STAGE_INSTANTIATE, XLA_FFI_ExecutionStage_INSTANTIATE);
EQUAL(XLA_TRAIT_COMMAND_BUFFER, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
EQUAL(XLA_ATTR_ARRAY, XLA_FFI_AttrType_ARRAY);
EQUAL(XLA_ATTR_SCALAR, XLA_FFI_AttrType_SCALAR);
EQUAL(XLA_UNAVAILABLE, XLA_FFI_Error_Code_UNAVAILABLE);
EQUAL(XLA_PRED, XLA_FFI_DataType_PRED);
EQUAL(XLA_S64, XLA_FFI_DataType_S64);
EQUAL(XLA_U64, XLA_FFI_DataType_U64);
EQUAL(XLA_F64, XLA_FFI_DataType_F64);
EQUAL(XLA_BF16, XLA_FFI_DataType_BF16);
EQUAL(XLA_C64, XLA_FFI_DataType_C64);
EQUAL(XLA_C128, XLA_FFI_DataType_C128);
EQUAL(XLA_F8E5M2, XLA_FFI_DataType_F8E5M2);
EQUAL(XLA_F8E4M3FN, XLA_FFI_DataType_F8E4M3FN);

#ifdef XLA_FFI_API_COLLECTIVES_C_API_H_
SAME(xla_api, find_extension, struct XLA_FFI_Api, XLA_FFI_InvokeContext_FindExtension);
SAME(xla_find_args, ctx, struct XLA_FFI_InvokeContext_FindExtension_Args, ctx);
SAME(xla_find_args, type, struct XLA_FFI_InvokeContext_FindExtension_Args, extension_type);
SAME(xla_find_args, found, struct XLA_FFI_InvokeContext_FindExtension_Args, extension);
SAME(xla_call_extension, type, struct XLA_FFI_Extension, id.extension_type);
SAME(xla_call_extension, major, struct XLA_FFI_Extension, id.major_version);
SAME(xla_call_extension, minor, struct XLA_FFI_Extension, id.minor_version);
SAME(xla_call_extension, next, struct XLA_FFI_Extension, next);
SAME(xla_collectives, base, struct XLA_FFI_Collectives_Extension, extension_base);
SAME(xla_collectives, state, struct XLA_FFI_Collectives_Extension, state);
SAME(xla_collectives, request, struct XLA_FFI_Collectives_Extension, request_communicator);
SAME(xla_collectives, get, struct XLA_FFI_Collectives_Extension, get_communicator);
SAME(xla_replica_group, ids, struct XLA_FFI_ReplicaGroup, ids);
SAME(xla_replica_group, size, struct XLA_FFI_ReplicaGroup, size);
SAME(xla_communicator_args, group_mode, struct XLA_FFI_Communicator_Request_Args, group_mode);
SAME(xla_communicator_args, groups, struct XLA_FFI_Communicator_Request_Args, groups);
SAME(xla_communicator_args, num_groups, struct XLA_FFI_Communicator_Request_Args, num_groups);
SAME(xla_communicator_args, id, struct XLA_FFI_Communicator_Request_Args, communication_id);
SAME(xla_communicator_args, id, struct XLA_FFI_Communicator_Get_Args, communication_id);
SAME(xla_communicator_args, communicator, struct XLA_FFI_Communicator_Get_Args, communicator);
_Static_assert(offsetof(xla_communicator_args, communicator) ==
                   XLA_FFI_Communicator_Request_Args_STRUCT_SIZE,
               "what a request is as long as");
_Static_assert(sizeof(xla_communicator_args) == XLA_FFI_Communicator_Get_Args_STRUCT_SIZE,
               "what a question is as long as");
EQUAL(XLA_COLLECTIVES, XLA_FFI_Extension_Collectives);
EQUAL(XLA_COLLECTIVES_MAJOR, XLA_FFI_Extension_Collectives_MajorVersion);
EQUAL(XLA_GROUP_FLATTENED_ID, XLA_FFI_GROUP_FLATTENED_ID);
#endif
