#include "core/device/code.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"
#include "core/device/embedded.h"
#include "base/sha256.h"

enum { MAX_DEVICES = 64, MAX_FILES = 16, MAX_CUBIN = 32 << 20, DIGEST = 32 };

/* NVRTC has no C library; this is what the sources want of it. */
static const oriel_embedded standard[] = {
    {"stdint.h", "typedef signed char int8_t; typedef short int16_t; typedef int int32_t;\n"
                 "typedef long long int64_t; typedef unsigned char uint8_t;\n"
                 "typedef unsigned short uint16_t; typedef unsigned int uint32_t;\n"
                 "typedef unsigned long long uint64_t;\n"
                 "#define UINT32_C(x) x##u\n#define UINT64_C(x) x##ull\n"},
    {"string.h", ""},
};

struct sources {
    const char *main;             /* what is compiled; includes some of the texts */
    const char *texts[MAX_FILES]; /* files that may be included ... */
    const char *names[MAX_FILES]; /* ... and what #include calls them */
    int n;                        /* so many of them */
};

static void find_sources(struct sources *sources_p)
{
    struct sources s = {0};

    for (size_t i = 0; i < sizeof standard / sizeof *standard; i++) {
        s.texts[s.n] = standard[i].text;
        s.names[s.n++] = standard[i].name;
    }
    for (const oriel_embedded *e = oriel_embedded_files; e->name != NULL && s.n < MAX_FILES; e++) {
        if (strcmp(e->name, "ops/cuda/kernels/kernels.cu") == 0)
            s.main = e->text;
        s.texts[s.n] = e->text;
        s.names[s.n++] = e->name;
    }
    *sources_p = s;
}

/* ---- compiling --------------------------------------------------------------------- */

static oriel_status compile_failed(const cu_nvrtc *nvrtc, nvrtc_program program, int part, int arch)
{
    size_t bytes = 0;
    char *log;

    nvrtc->log_size(program, &bytes);
    log = oriel_sys_now->alloc(bytes + 1);
    if (log != NULL)
        nvrtc->log(program, log);
    oriel_log(ORIEL_LOG_ERROR, "NVRTC: %s", log != NULL ? log : "out of memory for its log");
    oriel_sys_now->release(log);
    return oriel_fail(ORIEL_ERR_SYSTEM, "NVRTC failed to compile part %d of the kernels for sm_%d",
                      part, arch);
}

static oriel_status take_cubin(const cu_nvrtc *nvrtc, nvrtc_program program, void **cubin_p,
                               size_t *bytes_p)
{
    size_t bytes = 0;
    char *cubin;

    if (nvrtc->cubin_size(program, &bytes) != 0 || bytes == 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "NVRTC gave no code");
    cubin = oriel_sys_now->alloc(bytes);
    if (cubin == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %zu bytes of code", bytes);
    nvrtc->cubin(program, cubin);
    *cubin_p = cubin;
    *bytes_p = bytes;
    return ORIEL_OK;
}

oriel_status oriel_device_code_compile(int part, int arch, void **cubin_p, size_t *bytes_p)
{
    char target[32];
    char which[32];
    const char *options[] = {target, which, "--std=c++17", "--fmad=false"};
    const cu_nvrtc *nvrtc;
    nvrtc_program program;
    struct sources s;
    oriel_status st = oriel_nvrtc_open(&nvrtc);

    if (st != ORIEL_OK)
        return st;
    find_sources(&s);
    snprintf(target, sizeof target, "--gpu-architecture=sm_%d", arch);
    snprintf(which, sizeof which, "-DPART=%d", part);
    if (nvrtc->create(&program, s.main, "kernels.cu", s.n, s.texts, s.names) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "NVRTC made no program");
    st = nvrtc->compile(program, 4, options) == 0 ? take_cubin(nvrtc, program, cubin_p, bytes_p)
                                                  : compile_failed(nvrtc, program, part, arch);
    nvrtc->destroy(&program);
    return st;
}

/* ---- on disk ------------------------------------------------------------------------- */

/* "13.0"; "": there is none. */
static void find_version(char *out, size_t len)
{
    const cu_nvrtc *nvrtc;
    int major = 0;
    int minor = 0;

    out[0] = '\0';
    if (oriel_nvrtc_open(&nvrtc) == ORIEL_OK && nvrtc->version(&major, &minor) == 0)
        snprintf(out, len, "%d.%d", major, minor);
}

void oriel_device_code_name(int part, int arch, const char *version, char *path, size_t len)
{
    const char *folder = oriel_config_string(ORIEL_OPT_CACHE);
    const char *home = getenv("HOME");
    unsigned char digest[DIGEST];
    struct sources s;
    oriel_sha256 hash;
    size_t used;

    find_sources(&s);
    oriel_sha256_begin(&hash);
    for (int i = 0; i < s.n; i++)
        oriel_sha256_update(&hash, s.texts[i], strlen(s.texts[i]) + 1);
    oriel_sha256_update(&hash, version, strlen(version));
    oriel_sha256_end(&hash, digest);
    if (folder[0] != '\0')
        snprintf(path, len, "%s", folder);
    else
        snprintf(path, len, "%s/.cache/oriel", home != NULL ? home : "/nonexistent");
    used = strlen(path);
    snprintf(path + used, len - used, "/sm_%d-%d-%02x%02x%02x%02x%02x%02x%02x%02x.cubin", arch,
             part, digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6],
             digest[7]);
}

/* A file ends with the digest of the rest: a torn one counts as none. */
static int read_code(const char *path, void **cubin_p, size_t *bytes_p)
{
    unsigned char digest[DIGEST];
    oriel_sha256 hash;
    char *data = oriel_sys_now->alloc(MAX_CUBIN);
    ssize_t got = data != NULL ? oriel_sys_now->read_file(path, data, MAX_CUBIN) : -1;

    if (got > DIGEST) {
        oriel_sha256_begin(&hash);
        oriel_sha256_update(&hash, data, (size_t)got - DIGEST);
        oriel_sha256_end(&hash, digest);
    }
    if (got <= DIGEST || memcmp(digest, data + got - DIGEST, DIGEST) != 0) {
        oriel_sys_now->release(data);
        return -1;
    }
    *cubin_p = data;
    *bytes_p = (size_t)got - DIGEST;
    return 0;
}

static void write_code(const char *path, const void *cubin, size_t bytes)
{
    oriel_sha256 hash;
    char *data = oriel_sys_now->alloc(bytes + DIGEST);

    if (data == NULL)
        return;
    memcpy(data, cubin, bytes);
    oriel_sha256_begin(&hash);
    oriel_sha256_update(&hash, cubin, bytes);
    oriel_sha256_end(&hash, (unsigned char *)data + bytes);
    if (oriel_sys_now->write_file(path, data, bytes + DIGEST) != 0)
        oriel_log(ORIEL_LOG_INFO, "compiled kernels cannot be kept as %s", path);
    oriel_sys_now->release(data);
}

struct job {
    int part, arch;      /* which of DEVICE_PARTS, and for which GPU: 90 for sm_90 */
    void *cubin;         /* the result; NULL: it failed */
    size_t bytes;        /* of it */
    oriel_status status; /* why it failed ... */
    char text[256];      /* ... in a sentence */
};

static void *make_part(void *arg)
{
    struct job *job = arg;
    char version[32];
    char path[512];

    find_version(version, sizeof version);
    oriel_device_code_name(job->part, job->arch, version, path, sizeof path);
    if (read_code(path, &job->cubin, &job->bytes) == 0)
        return NULL;
    job->status = oriel_device_code_compile(job->part, job->arch, &job->cubin, &job->bytes);
    if (job->status != ORIEL_OK) {
        snprintf(job->text, sizeof job->text, "%s", oriel_last_error());
        return NULL;
    }
    write_code(path, job->cubin, job->bytes);
    oriel_device_code_name(job->part, job->arch, "", path, sizeof path);
    write_code(path, job->cubin, job->bytes);
    return NULL;
}

/* All parts side by side. */
static oriel_status make_all(int arch, struct job *jobs)
{
    pthread_t threads[DEVICE_PARTS];
    int started[DEVICE_PARTS];
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < DEVICE_PARTS; i++) {
        jobs[i] = (struct job){.part = i, .arch = arch};
        started[i] = oriel_sys_now->thread(&threads[i], make_part, &jobs[i]) == 0;
        if (!started[i])
            make_part(&jobs[i]);
    }
    for (int i = 0; i < DEVICE_PARTS; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        if (jobs[i].status != ORIEL_OK && st == ORIEL_OK)
            st = oriel_fail(jobs[i].status, "%s", jobs[i].text);
    }
    return st;
}

/* ---- loading --------------------------------------------------------------------------- */

/* Which part kernels.cu puts a type in; copies are in part 0. */
static int part_of(const char *type)
{
    static const char *const parts[DEVICE_PARTS] = {
        "f32", "bool u8 s8", "u16 s16 u32 s32", "u64 s64 f64", "f16 f8e4m3fn", "f8e5m2 c64 c128",
        "bf16"};
    size_t len = strlen(type);

    for (int i = 0; i < DEVICE_PARTS; i++) {
        for (const char *at = parts[i]; (at = strstr(at, type)) != NULL; at++) {
            if ((at == parts[i] || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
                return i;
        }
    }
    return 0;
}

static oriel_status find_function(cu_module module, const char *name, cu_function *f_p)
{
    oriel_status st =
        oriel_cuda_check(oriel_cu->module_function(f_p, module, name), "looking for a kernel");

    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->function_load(*f_p), "loading a kernel");
    return st == ORIEL_OK ? st : oriel_fail_in(st, "%s", name);
}

/* The type whose kernel gives the same bits: all but the order of signed integers is that of
 * unsigned ones, and complex sums those of their parts. */
static const char *kernel_type(oriel_dtype dtype, oriel_redop op)
{
    int wraps = op != ORIEL_MIN && op != ORIEL_MAX;

    switch (dtype) {
    case ORIEL_S8:
        return wraps ? "u8" : "s8";
    case ORIEL_S16:
        return wraps ? "u16" : "s16";
    case ORIEL_S32:
        return wraps ? "u32" : "s32";
    case ORIEL_S64:
        return wraps ? "u64" : "s64";
    case ORIEL_C64:
        return op == ORIEL_SUM ? "f32" : "c64";
    case ORIEL_C128:
        return op == ORIEL_SUM ? "f64" : "c128";
    default:
        return oriel_dtype_name(dtype);
    }
}

/* Only what programs sum most has wide kernels: they take their time to compile. */
static int is_wide(oriel_dtype dtype, oriel_redop op)
{
    return op == ORIEL_SUM && (dtype == ORIEL_F16 || dtype == ORIEL_BF16 || dtype == ORIEL_F32 ||
                               dtype == ORIEL_F64 || dtype == ORIEL_C64 || dtype == ORIEL_C128);
}

static oriel_status find_reduction(const cu_module *modules, enum device_family family,
                                   oriel_dtype dtype, oriel_redop op, cu_function *f_p)
{
    static const char *const families[] = {"small", "wide", "large", "span"};
    const char *type = kernel_type(dtype, op);
    const char *verb = oriel_redop_name(op);
    char name[64];
    int complex = dtype == ORIEL_C64 || dtype == ORIEL_C128;

    if (op >= ORIEL_AND && dtype > ORIEL_U64) /* oriel_reduce_supported */
        return ORIEL_OK;
    if (family < DEVICE_LARGE && complex && op != ORIEL_SUM)
        return ORIEL_OK;
    if (family == DEVICE_WIDE && !is_wide(dtype, op))
        return ORIEL_OK;
    if (dtype == ORIEL_BOOL && op < ORIEL_AND)
        verb = op == ORIEL_SUM || op == ORIEL_MAX ? "or" : "and";
    snprintf(name, sizeof name, "oriel_%s_%s_%s", families[family], type, verb);
    return find_function(modules[part_of(type)], name, f_p);
}

static oriel_status find_all(const cu_module *modules, oriel_device_code *code)
{
    const struct {
        const char *name; /* of the kernel */
        cu_function *f_p; /* where it goes */
    } plain[] = {{"oriel_small_copy", &code->copy[DEVICE_SMALL]},
                 {"oriel_wide_copy", &code->copy[DEVICE_WIDE]},
                 {"oriel_large_copy", &code->copy[DEVICE_LARGE]},
                 {"oriel_ragged", &code->ragged},
                 {"oriel_kernel_begin", &code->begin},
                 {"oriel_kernel_end", &code->end},
                 {"oriel_kernel_span_begin", &code->far_begin},
                 {"oriel_kernel_span_end", &code->far_end},
                 {"oriel_span_begin", &code->span_begin},
                 {"oriel_span_compare", &code->span_compare},
                 {"oriel_span_pick", &code->span_pick},
                 {"oriel_meet", &code->meet},
                 {"oriel_judge", &code->judge}};
    oriel_status st = ORIEL_OK;

    for (size_t i = 0; i < sizeof plain / sizeof *plain && st == ORIEL_OK; i++)
        st = find_function(modules[0], plain[i].name, plain[i].f_p);
    for (int f = 0; f < DEVICE_FAMILIES; f++) {
        for (int d = 0; d < ORIEL_DTYPE_COUNT; d++) {
            for (int op = 0; op < ORIEL_REDOP_COUNT && st == ORIEL_OK; op++)
                st = find_reduction(modules, (enum device_family)f, (oriel_dtype)d, (oriel_redop)op,
                                    &code->reduce[f][d][op]);
        }
    }
    return st;
}

static oriel_status load_modules(const oriel_gpu *gpu, oriel_device_code *code)
{
    cu_module modules[DEVICE_PARTS] = {0};
    struct job jobs[DEVICE_PARTS];
    oriel_status st = make_all(gpu->arch, jobs);

    oriel_cuda_enter(gpu);
    for (int i = 0; i < DEVICE_PARTS; i++) {
        if (st == ORIEL_OK)
            st = oriel_cuda_check(oriel_cu->module_load(&modules[i], jobs[i].cubin, 0, NULL, NULL),
                                  "loading the kernels");
        oriel_sys_now->release(jobs[i].cubin);
    }
    if (st == ORIEL_OK)
        st = find_all(modules, code);
    for (int i = 0; i < DEVICE_PARTS && st != ORIEL_OK; i++) {
        if (modules[i] != NULL)
            oriel_cu->module_unload(modules[i]);
    }
    oriel_cuda_leave();
    return st;
}

oriel_status oriel_device_code_load(const oriel_gpu *gpu, const oriel_device_code **code_p)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static oriel_device_code codes[MAX_DEVICES];
    static int loaded[MAX_DEVICES];
    oriel_status st = ORIEL_OK;

    if (gpu->ordinal >= MAX_DEVICES)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "device %d: at most %d are supported",
                          gpu->ordinal, MAX_DEVICES);
    pthread_mutex_lock(&lock);
    if (!loaded[gpu->ordinal])
        st = load_modules(gpu, &codes[gpu->ordinal]);
    loaded[gpu->ordinal] |= st == ORIEL_OK;
    pthread_mutex_unlock(&lock);
    if (st == ORIEL_OK)
        *code_p = &codes[gpu->ordinal];
    return st;
}
