/* What the XLA FFI handlers share. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "xla/ffi/api/c_api.h"

/* Whether XLA only asks for the version of the API; then it is told. */
static inline int asked_for_version(XLA_FFI_CallFrame *frame)
{
    if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return 0;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return 1;
}

static inline XLA_FFI_Error *no_memory(XLA_FFI_CallFrame *frame, const char *message)
{
    XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message,
                                      XLA_FFI_Error_Code_RESOURCE_EXHAUSTED};
    return frame->api->XLA_FFI_Error_Create(&args);
}

static inline double soft(double v, double l1)
{
    return v > l1 ? v - l1 : v < -l1 ? v + l1 : 0.0;
}
