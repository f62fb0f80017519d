/* Functions that the tests of tests/jax/memory load. */
#include <time.h>

#include <oriel/op.h>

/* Where operand 0 lies, and where this rank's part of it is for the others. */
ORIEL_OP oriel_status addresses(oriel_call *call)
{
    int64_t *seen = call->results[0].data;

    seen[0] = (int64_t)(uintptr_t)call->operands[0].data;
    seen[1] = (int64_t)(uintptr_t)call->operands[0].peers[call->rank];
    return ORIEL_OK;
}

/* Operand 0 is the address of two numbers: waits until the first is not 0, then counts in the
 * second. The result is 0. */
ORIEL_OP oriel_status gate(oriel_call *call)
{
    const struct timespec pause = {0, 100000}; /* several ranks wait beside what is to open it */
    int64_t *numbers = (int64_t *)(uintptr_t) * (const int64_t *)call->operands[0].data;

    while (__atomic_load_n(&numbers[0], __ATOMIC_ACQUIRE) == 0) {
        if (call->failed(call))
            return oriel_call_fail(call, ORIEL_ERR_TIMEOUT, "nobody opened the gate");
        nanosleep(&pause, NULL);
    }
    __atomic_add_fetch(&numbers[1], 1, __ATOMIC_RELEASE);
    memset(call->results[0].data, 0, call->results[0].bytes);
    return ORIEL_OK;
}
