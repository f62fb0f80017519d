/* How one process hands file descriptors to its peers; every fabric within a machine
 * passes its segments so. */
#ifndef ORIEL_FABRIC_PORT_H
#define ORIEL_FABRIC_PORT_H

#include "fabric/fabric.h"

/* As the slots of the same names in fabric.h. */
oriel_status oriel_port_create(oriel_port *port_p);
void oriel_port_close(oriel_port *port);
void oriel_port_serve(oriel_port *port, oriel_segment_lookup lookup, void *ctx);
/* Asks the port behind `ticket` for the descriptor of segment `id`; it is the caller's. */
oriel_status oriel_port_fetch(const oriel_ticket *ticket, uint64_t id, double timeout_s, int *fd_p);

#endif
