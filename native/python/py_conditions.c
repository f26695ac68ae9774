/* Conditions as tuples of Python: who calls keeps them for as long as they are in use. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/py_conditions.h"

static bool refuse(void)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "no condition is like that");
    return false;
}

static bool take_step(PyObject *given, struct condition_step *step)
{
    if (PyBytes_Check(given)) {
        step->name = (const uint8_t *)PyBytes_AS_STRING(given);
        step->len = (size_t)PyBytes_GET_SIZE(given);
        return true;
    }
    step->index = PyLong_AsUnsignedLongLong(given);
    return !PyErr_Occurred();
}

static bool take_steps(PyObject *given, struct condition *one)
{
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) > (Py_ssize_t)CONDITION_STEPS_MAX)
        return false;
    one->step_count = (uint32_t)PyTuple_GET_SIZE(given);
    for (uint32_t i = 0; i < one->step_count; i++)
        if (!take_step(PyTuple_GET_ITEM(given, i), &one->steps[i]))
            return false;
    return true;
}

static bool take_condition(PyObject *given, struct condition *one)
{
    int of, test, quoted;
    const char *name, *text;
    Py_ssize_t name_len, text_len;
    PyObject *steps, *number;
    if (!PyTuple_Check(given) ||
        !PyArg_ParseTuple(given, "iiy#Oy#pO", &of, &test, &name, &name_len, &steps, &text,
                          &text_len, &quoted, &number))
        return false;
    if (of < 0 || of >= CONDITION_OF_COUNT || test < 0 || test >= CONDITION_TEST_COUNT)
        return false;
    one->of = (enum condition_of)of;
    one->test = (enum condition_test)test;
    one->name = (const uint8_t *)name;
    one->name_len = (size_t)name_len;
    one->text = (const uint8_t *)text;
    one->text_len = (size_t)text_len;
    one->quoted = quoted != 0;
    one->has_number = number != Py_None;
    if (one->has_number)
        one->number = PyFloat_AsDouble(number);
    return !PyErr_Occurred() && take_steps(steps, one);
}

bool py_conditions(PyObject *given, struct conditions *out)
{
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) > (Py_ssize_t)CONDITIONS_MAX)
        return refuse();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++)
        if (!take_condition(PyTuple_GET_ITEM(given, i), &out->each[out->count++]))
            return refuse();
    return true;
}
