/* Limits that a container or a batch system has set for this process. */
#ifndef ORIEL_TOOLS_CGROUP_H
#define ORIEL_TOOLS_CGROUP_H

/* Cores of processor time this process may use; 0 when there is no limit. */
double oriel_cgroup_cores(void);
/* Bytes of memory this process may use; 0 when there is no limit. */
double oriel_cgroup_memory(void);
/* The first line of a small file without its newline; -1 when it cannot be read. */
int oriel_file_line(const char *path, char *line, int bytes);

#endif
