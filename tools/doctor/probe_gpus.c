/* What GPUs are here and what oriel would do with them. The driver and its libraries are
 * opened in a process of their own: opening them runs code of others, and a broken driver
 * may end it or never return. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/start/fabrics.h"
#include "doctor/doctor.h"
#include "oriel/oriel.h"

enum { LOOK_S = 60, OLDEST_NVRTC = 1203, SLOW_PERCENT = 60, OLDEST_ARCH = 80 };

/* ---- asking ------------------------------------------------------------------------------ */

static _Noreturn void look(const oriel_wheels *wheels, int out)
{
    static oriel_gpu_report facts;
    const char *from = (const char *)&facts;
    size_t left = sizeof(facts);

    /* As the Python package does. */
    if (wheels->nvrtc[0] != '\0')
        setenv("ORIEL_NVRTC", wheels->nvrtc, 0);
    if (wheels->nccl[0] != '\0')
        setenv("ORIEL_NCCL", wheels->nccl, 0);
    oriel_config_load();
    oriel_cuda_look(&facts.cuda);
    oriel_nccl_find(&facts.nccl);
    while (left > 0) {
        ssize_t n = write(out, from + (sizeof(facts) - left), left);

        if (n <= 0)
            _exit(1);
        left -= (size_t)n;
    }
    _exit(0);
}

/* 0: it ended, or did not end in time. */
static int take_facts(const oriel_wheels *wheels, oriel_gpu_report *facts_p)
{
    size_t got;
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    pid = oriel_probe_fork(LOOK_S);
    if (pid == 0)
        look(wheels, ends[1]);
    close(ends[1]);
    got = pid > 0 ? oriel_probe_read(ends[0], oriel_now() + LOOK_S, facts_p, sizeof(*facts_p)) : 0;
    close(ends[0]);
    if (pid > 0)
        oriel_probe_wait(pid);
    return got == sizeof(*facts_p);
}

/* ---- judging ------------------------------------------------------------------------------ */

static const char driver_why[] = "NVIDIA's GPUs need it; oriel works without, on the CPU";

static void judge_driver(oriel_report *report, const oriel_cuda_facts *facts)
{
    if (!facts->has_driver)
        oriel_report_add(report, "CUDA driver", ORIEL_FINDING_MISSING, driver_why,
                         "nothing to do where there is no GPU; otherwise install NVIDIA's driver",
                         "libcuda.so.1 is not found");
    else if (facts->problem[0] != '\0')
        oriel_report_add(report, "CUDA driver", ORIEL_FINDING_WARN, driver_why,
                         "see what nvidia-smi says in the same place", "%s", facts->problem);
    else
        oriel_report_add(
            report, "CUDA driver", ORIEL_FINDING_OK, "", "", "%s, for CUDA up to %d.%d; %d GPU%s",
            facts->driver[0] != '\0' ? facts->driver : "of unknown version", facts->version / 1000,
            facts->version % 1000 / 10, facts->num_gpus, facts->num_gpus == 1 ? "" : "s");
}

static const char *yes(int value)
{
    return value ? "yes" : "no";
}

static void judge_gpu(oriel_report *report, const oriel_gpu_facts *gpu, int number)
{
    int broken = gpu->problem[0] != '\0';
    char name[32];

    snprintf(name, sizeof(name), "GPU %d", number);
    oriel_report_add(report, name, broken ? ORIEL_FINDING_WARN : ORIEL_FINDING_OK,
                     broken ? "oriel cannot use it" : "",
                     broken ? "leave it out with CUDA_VISIBLE_DEVICES, or mend it" : "",
                     "%s, %.1f GiB, %d multiprocessors, sm_%d; virtual memory %s, descriptors %s, "
                     "fabric handles %s, multicast %s%s%.120s",
                     gpu->name, (double)gpu->bytes / (1 << 30), gpu->sms, gpu->arch, yes(gpu->vmm),
                     yes(gpu->fds), yes(gpu->fabric), yes(gpu->multicast), broken ? ": " : "",
                     gpu->problem);
}

static void judge_copy(oriel_report *report, const oriel_gpu_facts *gpu, int number)
{
    double percent = gpu->memory_rate > 0 ? 100 * gpu->copy_rate / gpu->memory_rate : 0;
    int slow = percent < SLOW_PERCENT && gpu->memory_rate > 0;
    char name[32];

    if (gpu->copy_rate == 0)
        return;
    snprintf(name, sizeof(name), "copy on GPU %d", number);
    if (gpu->memory_rate == 0)
        oriel_report_add(report, name, ORIEL_FINDING_OK,
                         "the driver does not tell clock and bus width, to compare with", "",
                         "%.0f GB/s, read plus written", gpu->copy_rate * 1e-9);
    else
        oriel_report_add(report, name, slow ? ORIEL_FINDING_WARN : ORIEL_FINDING_OK,
                         "no operation on this GPU can be faster than its copies",
                         slow ? "see in nvidia-smi who else uses it, and its clocks" : "",
                         "%.0f GB/s, read plus written: %.0f %% of the %.0f GB/s that memory clock "
                         "and bus width give",
                         gpu->copy_rate * 1e-9, percent, gpu->memory_rate * 1e-9);
}

static void judge_reach(oriel_report *report, const oriel_cuda_facts *facts)
{
    int n = facts->num_gpus < FACTS_GPUS ? facts->num_gpus : FACTS_GPUS;

    if (n < 2)
        return;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++) {
            if ((facts->gpus[i].reaches >> k & 1) == 0) {
                oriel_report_add(report, "peer access", ORIEL_FINDING_WARN,
                                 "a world with both is refused: there is no NVLink or PCIe path "
                                 "that kernels can use",
                                 "use GPUs that reach each other: nvidia-smi topo -p2p r",
                                 "GPU %d has no access to the memory of GPU %d", i, k);
                return;
            }
        }
    }
    oriel_report_add(report, "peer access", ORIEL_FINDING_OK, "", "",
                     "each of %d GPUs has access to the memory of all others", n);
}

static void judge_mps(oriel_report *report, const oriel_cuda_facts *facts)
{
    if (facts->gpus[0].mps)
        oriel_report_add(report, "MPS", ORIEL_FINDING_OK,
                         "processes that share a GPU run side by side on it", "",
                         "used by this process, through %s", facts->mps_folder);
    else if (facts->mps_daemon != 0)
        oriel_report_add(report, "MPS", ORIEL_FINDING_WARN,
                         "processes that share a GPU take turns, a few milliseconds each: right, "
                         "but slow",
                         "start programs as the user and with the CUDA_MPS_PIPE_DIRECTORY of the "
                         "daemon",
                         "its daemon runs (process %d, %s), but this process does not use it",
                         facts->mps_daemon, facts->mps_folder);
    else
        oriel_report_add(report, "MPS", ORIEL_FINDING_MISSING,
                         "only of use where several processes share a GPU: without it they take "
                         "turns, a few milliseconds each",
                         "nvidia-cuda-mps-control -d", "no daemon at %s", facts->mps_folder);
}

static void judge_nvrtc(oriel_report *report, const oriel_cuda_facts *facts)
{
    static const char why[] = "compiles kernels for GPUs";
    const oriel_library_facts *nvrtc = &facts->nvrtc;

    if (nvrtc->file[0] == '\0')
        oriel_report_add(report, "NVRTC", ORIEL_FINDING_MISSING, why,
                         "of use on GPUs alone: pip install nvidia-cuda-nvrtc, or set ORIEL_NVRTC "
                         "to its file",
                         "libnvrtc.so is not found");
    else if (100 * nvrtc->major + nvrtc->minor < OLDEST_NVRTC)
        oriel_report_add(report, "NVRTC", ORIEL_FINDING_WARN, why,
                         "install 12.3 or later, and set ORIEL_NVRTC to its file",
                         "%d.%d, %s: too old, oriel needs 12.3", nvrtc->major, nvrtc->minor,
                         nvrtc->file);
    else if (facts->version > 0 && nvrtc->major > facts->version / 1000)
        oriel_report_add(report, "NVRTC", ORIEL_FINDING_WARN, why,
                         "install a newer driver, or NVRTC of the driver's version",
                         "%d.%d, %s: newer than the driver, which knows CUDA up to %d.%d and may "
                         "refuse the code",
                         nvrtc->major, nvrtc->minor, nvrtc->file, facts->version / 1000,
                         facts->version % 1000 / 10);
    else
        oriel_report_add(report, "NVRTC", ORIEL_FINDING_OK, why, "", "%d.%d, %s", nvrtc->major,
                         nvrtc->minor, nvrtc->file);
}

static const char nccl_why[] = "the fabric of GPUs with ORIEL_FABRIC=nccl; cuda needs none";

/* What speaks against it beside other libraries of CUDA; "": nothing. */
static void find_mismatch(const oriel_gpu_report *gpus, char *text, size_t len)
{
    const oriel_cuda_facts *facts = &gpus->cuda;
    int major = gpus->nccl.cuda / 100;

    text[0] = '\0';
    if (major == 0)
        return;
    if (facts->version > 0 && major > facts->version / 1000)
        snprintf(text, len, "; the driver knows CUDA up to %d.%d", facts->version / 1000,
                 facts->version % 1000 / 10);
    else if (facts->nvrtc.file[0] != '\0' && facts->nvrtc.major != major)
        snprintf(text, len, "; NVRTC is of CUDA %d", facts->nvrtc.major);
}

static void judge_nccl(oriel_report *report, const oriel_gpu_report *gpus)
{
    const oriel_nccl_facts *nccl = &gpus->nccl;
    const oriel_library_facts *library = &nccl->library;
    char built[32] = "an unknown CUDA";
    char mismatch[64];

    if (nccl->cuda > 0)
        snprintf(built, sizeof(built), "CUDA %d.%d", nccl->cuda / 100, nccl->cuda % 100);
    find_mismatch(gpus, mismatch, sizeof(mismatch));
    if (library->file[0] == '\0')
        oriel_report_add(report, "NCCL", ORIEL_FINDING_MISSING, nccl_why,
                         "of use on GPUs alone: pip install nvidia-nccl-cu13 (or -cu12), or set "
                         "ORIEL_NCCL to its file",
                         "%s", nccl->problem);
    else
        oriel_report_add(
            report, "NCCL", mismatch[0] != '\0' ? ORIEL_FINDING_WARN : ORIEL_FINDING_OK, nccl_why,
            mismatch[0] != '\0' ? "install the wheel of the same major version of CUDA: "
                                  "nvidia-nccl-cu12 or nvidia-nccl-cu13"
                                : "",
            "%d.%d.%d for %s%s; configured as of %d.%d; %s", library->major, library->minor,
            library->patch, built, mismatch, nccl->config / 10000, nccl->config / 100 % 100,
            library->file);
}

/* What a newer NCCL would have. */
static void judge_nccl_fabric(oriel_report *report, const oriel_nccl_facts *nccl)
{
    const struct {
        int here;         /* this version has it */
        const char *text; /* what it is, and since when */
    } features[] = {{nccl->shares_gpu, "ranks that share a GPU (2.30)"},
                    {nccl->sizes_differ, "buffers of sizes that differ between ranks (2.30)"},
                    {nccl->bounded_barrier, "barriers with a deadline (2.30)"},
                    {nccl->host_pointers, "addresses of windows on the host (2.29.2)"}};
    char missing[220] = "";

    if (nccl->library.file[0] == '\0')
        return;
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
        size_t used = strlen(missing);

        if (!features[i].here)
            snprintf(missing + used, sizeof(missing) - used, "%s%s", used > 0 ? ", " : "",
                     features[i].text);
    }
    if (missing[0] == '\0')
        oriel_report_add(
            report, "NCCL's windows", ORIEL_FINDING_OK,
            "GIN, its puts and signals over an RDMA NIC, is not used: within a machine "
            "kernels load and store",
            "", "all that oriel uses is here");
    else
        oriel_report_add(report, "NCCL's windows", ORIEL_FINDING_MISSING,
                         "without the first, ranks that share a GPU are refused; without the "
                         "second, such buffers are staged",
                         "install NCCL 2.30 or later", "this version lacks %s", missing);
}

/* The variables that change what GPUs do, as they are set. */
static void list_options(char *text, size_t len)
{
    static const char *const names[] = {
        "ORIEL_FABRIC",    "ORIEL_DIRECT",    "ORIEL_GPU_CTAS", "ORIEL_GPU_KERNEL_CTAS",
        "ORIEL_GPU_STAGE", "ORIEL_GPU_ARENA", "ORIEL_NVRTC",    "ORIEL_NCCL",
        "ORIEL_CACHE",     "ORIEL_SYNC"};
    oriel_option option;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; oriel_option_get(i, &option) == ORIEL_OK; i++) {
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
            if (strcmp(option.name, names[k]) == 0 && strcmp(option.source, "environment") == 0 &&
                used < len)
                used += (size_t)snprintf(text + used, len - used, "%s%s=%s", used > 0 ? ", " : "",
                                         option.name, option.value);
        }
    }
    if (used == 0)
        snprintf(text, len, "no variable changes this");
}

static void judge_path(oriel_report *report, const oriel_cuda_facts *facts)
{
    const oriel_gpu_facts *gpu = &facts->gpus[0];
    const oriel_device_fabric *fabric = oriel_device_fabrics[0];
    char options[160];

    list_options(options, sizeof(options));
    oriel_device_fabric_choose(1, &fabric);
    if (!gpu->vmm || !gpu->fds || gpu->arch < OLDEST_ARCH)
        oriel_report_add(report, "fabric on GPUs", ORIEL_FINDING_WARN,
                         "it needs sm_80 or later, virtual memory and POSIX descriptors",
                         "use another GPU, or the CPU", "none: GPU 0 lacks what cuda needs");
    else if (oriel_config_number(ORIEL_OPT_DIRECT) == 0)
        oriel_report_add(report, "fabric on GPUs", ORIEL_FINDING_WARN,
                         "ORIEL_DIRECT=0 forbids the direct path", "unset ORIEL_DIRECT",
                         "%s is chosen, staged: data passes through oriel's memory; %s",
                         fabric->name, options);
    else
        oriel_report_add(report, "fabric on GPUs", ORIEL_FINDING_OK,
                         "buffers that others cannot map, and new ones until all have mapped them, "
                         "are staged",
                         "",
                         "%s is chosen, direct: kernels load and store the buffers of other "
                         "ranks; %s",
                         fabric->name, options);
}

static void judge(oriel_report *report, const oriel_gpu_report *gpus)
{
    const oriel_cuda_facts *facts = &gpus->cuda;
    int usable = facts->has_driver && facts->problem[0] == '\0';

    judge_driver(report, facts);
    for (int i = 0; usable && i < facts->num_gpus && i < FACTS_GPUS; i++) {
        judge_gpu(report, &facts->gpus[i], i);
        judge_copy(report, &facts->gpus[i], i);
    }
    if (usable) {
        judge_reach(report, facts);
        judge_mps(report, facts);
        judge_path(report, facts);
    }
    judge_nvrtc(report, facts);
    judge_nccl(report, gpus);
    judge_nccl_fabric(report, &gpus->nccl);
}

void oriel_probe_gpus(oriel_report *report, const oriel_wheels *wheels)
{
    if (take_facts(wheels, &report->gpus)) {
        judge(report, &report->gpus);
        return;
    }
    memset(&report->gpus, 0, sizeof(report->gpus));
    oriel_report_add(report, "CUDA driver", ORIEL_FINDING_WARN, driver_why,
                     "see what nvidia-smi says; restart the machine, or install the driver anew",
                     "broken: it ended the process that opened it, or did not answer within %d s",
                     (int)LOOK_S);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void print_library(const char *name, const oriel_library_facts *library)
{
    printf(", \"%s\": ", name);
    if (library->file[0] == '\0') {
        printf("null");
        return;
    }
    printf("{\"version\": \"%d.%d.%d\", \"file\": ", library->major, library->minor,
           library->patch);
    oriel_json_string(library->file);
    printf("}");
}

static void print_gpu(const oriel_gpu_facts *gpu, int count)
{
    int first = 1;

    printf("{\"name\": ");
    oriel_json_string(gpu->name);
    printf(", \"bytes\": %llu, \"multiprocessors\": %d, \"arch\": %d, \"virtual_memory\": %d, "
           "\"descriptors\": %d, \"fabric_handles\": %d, \"multicast\": %d, \"mps\": %d, "
           "\"copy_bytes_per_s\": %.0f, \"memory_bytes_per_s\": %.0f, \"reaches\": [",
           gpu->bytes, gpu->sms, gpu->arch, gpu->vmm, gpu->fds, gpu->fabric, gpu->multicast,
           gpu->mps, gpu->copy_rate, gpu->memory_rate);
    for (int i = 0; i < count; i++) {
        if (gpu->reaches >> i & 1) {
            printf("%s%d", first ? "" : ", ", i);
            first = 0;
        }
    }
    printf("], \"problem\": ");
    oriel_json_string(gpu->problem);
    printf("}");
}

void oriel_gpus_json(const oriel_gpu_report *gpus)
{
    const oriel_cuda_facts *facts = &gpus->cuda;
    int n = facts->num_gpus < FACTS_GPUS ? facts->num_gpus : FACTS_GPUS;

    if (!facts->has_driver) {
        printf("null");
        return;
    }
    printf("{\"driver\": ");
    oriel_json_string(facts->driver);
    printf(", \"version\": %d, \"problem\": ", facts->version);
    oriel_json_string(facts->problem);
    printf(", \"mps_daemon\": %d", facts->mps_daemon);
    print_library("nvrtc", &facts->nvrtc);
    print_library("nccl", &gpus->nccl.library);
    printf(", \"gpus\": [");
    for (int i = 0; i < n; i++) {
        printf("%s\n  ", i > 0 ? "," : "");
        print_gpu(&facts->gpus[i], n);
    }
    printf("]}");
}
