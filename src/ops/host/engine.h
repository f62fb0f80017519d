/* Drives requests that did not end at once, from threads of its own.
 *
 * A request's `done` may run for long and may wait for other requests (XLA runs
 * the rest of a program in it). So a thread that calls `done` first makes sure
 * that another one goes on driving; the pool grows when none is idle. */
#ifndef ORIEL_OPS_HOST_ENGINE_H
#define ORIEL_OPS_HOST_ENGINE_H

#include "ops/host/request.h"

typedef struct oriel_engine oriel_engine;

oriel_status oriel_engine_create(oriel_comm *comm, oriel_engine **engine_p);
/* Waits at most `patience_s` seconds for pending requests, then revokes the comm
 * so that they fail; then ends the threads. */
void oriel_engine_destroy(oriel_engine *engine, double patience_s);

/* A request from the engine's free list; NULL when memory is out. */
oriel_request *oriel_engine_take(oriel_engine *engine);
/* With what it sends, if it is a sendrecv. */
void oriel_engine_give(oriel_engine *engine, oriel_request *request);
/* Steps until the outcome, or until nothing has moved for a while that XLA's
 * threads can be kept: ORIEL_IN_PROGRESS. */
oriel_status oriel_engine_linger(oriel_request *request);
/* The engine steps `request` from now on, calls `done` with the outcome and then
 * takes the request back. */
void oriel_engine_submit(oriel_engine *engine, oriel_request *request);

#endif
