/* What both halves of the reactor's Python face share. Needs Python.h before it. */
#ifndef BARCO_PY_REACTOR_H
#define BARCO_PY_REACTOR_H

#include "broker/answer.h"
#include "broker/reactor.h"

typedef struct {
    PyObject_HEAD
    struct reactor *reactor;
} ReactorObject;

/* NULL, with a Python error set, after close(). */
static inline struct reactor *reactor_of(PyObject *self)
{
    struct reactor *reactor = ((ReactorObject *)self)->reactor;
    if (reactor == NULL)
        PyErr_SetString(PyExc_ValueError, "the reactor is closed");
    return reactor;
}

/* "lz4" or "none"; NULL: the default. -1, with a Python error set, for anything else. */
int compression_number(const char *name);

extern PyMethodDef reactor_read_methods[];    /* py_reactor_read.c */
extern PyMethodDef reactor_replica_methods[]; /* py_replica.c */
extern PyMethodDef reactor_commit_methods[];  /* py_commit.c */
extern PyMethodDef reactor_access_methods[];  /* py_access.c */
extern PyMethodDef reactor_intake_methods[];  /* py_intake.c */
extern PyMethodDef reactor_tls_methods[];     /* py_tls.c */
extern PyMethodDef reactor_feed_methods[];    /* py_feed.c */
extern PyMethodDef reactor_stages_methods[];  /* py_stages.c */
extern PyMethodDef reactor_answer_methods[];  /* py_answers.c */
extern PyMethodDef reactor_delays_methods[];  /* py_delays.c */

/* A problem as (status, type, title); None of none. */
static inline PyObject *py_problem(uint16_t problem)
{
    if (problem == PROBLEM_NONE)
        Py_RETURN_NONE;
    return Py_BuildValue("(iss)", (int)answer_status(problem), answer_type(problem),
                         answer_title(problem));
}

#endif
