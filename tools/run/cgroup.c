#include "run/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A controller's folder, version 2 or 1; a process in a container sees the
 * host's path and has to go up until a folder is there. */
struct place {
    char root[64];       /* where the controller is mounted */
    char path[PATH_MAX]; /* of the folder below that; "": the root */
    int version;         /* of cgroups */
};

int oriel_file_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "re");
    int rc;

    if (file == NULL)
        return -1;
    rc = fgets(line, bytes, file) != NULL ? 0 : -1;
    fclose(file);
    if (rc == 0)
        line[strcspn(line, "\n")] = '\0';
    return rc;
}

static int list_has(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = list; *at != '\0'; at += strcspn(at, ",")) {
        at += *at == ',';
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return 1;
    }
    return 0;
}

/* A line of /proc/self/cgroup is "id:controllers:path"; version 2 has no
 * controllers. A version 1 line that names the controller wins: then it is that
 * one which sets the limit. */
static int place_find(const char *controller, struct place *place_p)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX + 64];

    place_p->version = 0;
    if (file == NULL)
        return -1;
    while (place_p->version != 1 && fgets(line, sizeof(line), file) != NULL) {
        char *list = strchr(line, ':');
        char *path = list != NULL ? strchr(list + 1, ':') : NULL;
        int version;

        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        version = list[1] == '\0' ? 2 : 1;
        if (version == 1 && !list_has(list + 1, controller))
            continue;
        place_p->version = version;
        snprintf(place_p->root, sizeof(place_p->root), "/sys/fs/cgroup%s%s",
                 version == 1 ? "/" : "", version == 1 ? controller : "");
        snprintf(place_p->path, sizeof(place_p->path), "%s", strcmp(path, "/") == 0 ? "" : path);
    }
    fclose(file);
    return place_p->version != 0 ? 0 : -1;
}

static int place_read(const struct place *place, const char *name, char *line, int bytes)
{
    char path[PATH_MAX + 128];

    snprintf(path, sizeof(path), "%s%s/%s", place->root, place->path, name);
    return oriel_file_line(path, line, bytes);
}

/* To the folder above; -1 at the root. */
static int place_up(struct place *place)
{
    char *slash = strrchr(place->path, '/');

    if (slash == NULL)
        return -1;
    *slash = '\0';
    return 0;
}

static double cores_here(const struct place *place)
{
    double quota = 0;
    double period = 0;
    char line[64];

    if (place->version == 2) {
        if (place_read(place, "cpu.max", line, sizeof(line)) != 0 ||
            sscanf(line, "%lf %lf", &quota, &period) != 2)
            return 0;
    } else {
        if (place_read(place, "cpu.cfs_quota_us", line, sizeof(line)) == 0)
            quota = strtod(line, NULL);
        if (place_read(place, "cpu.cfs_period_us", line, sizeof(line)) == 0)
            period = strtod(line, NULL);
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

static double memory_here(const struct place *place)
{
    const double unlimited = 1e18; /* version 1 writes a number near 2^63 */
    const char *name = place->version == 2 ? "memory.max" : "memory.limit_in_bytes";
    char line[64];
    double bytes;

    if (place_read(place, name, line, sizeof(line)) != 0)
        return 0;
    bytes = strtod(line, NULL); /* "max" gives 0 */
    return bytes < unlimited ? bytes : 0;
}

/* The tightest limit on the way to the root. */
static double tightest(const char *controller, double (*limit_here)(const struct place *))
{
    struct place place;
    double limit = 0;

    if (place_find(controller, &place) != 0)
        return 0;
    do {
        double here = limit_here(&place);

        if (here > 0 && (limit == 0 || here < limit))
            limit = here;
    } while (place_up(&place) == 0);
    return limit;
}

double oriel_cgroup_cores(void)
{
    return tightest("cpu", cores_here);
}

double oriel_cgroup_memory(void)
{
    return tightest("memory", memory_here);
}
