/* Shape: a program that says of many values at once that they are right. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "format/shape.h"

typedef struct {
    PyObject_HEAD
    struct shape *shape;
} ShapeObject;

static PyObject *Shape_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    Py_buffer program;
    if (!PyArg_ParseTuple(args, "y*", &program))
        return NULL;
    struct shape *shape = shape_new(program.buf, (size_t)program.len);
    PyBuffer_Release(&program);
    if (shape == NULL)
        return PyErr_Format(PyExc_ValueError, "this is no program of a shape");
    ShapeObject *object = (ShapeObject *)type->tp_alloc(type, 0);
    if (object == NULL)
        shape_free(shape);
    else
        object->shape = shape;
    return (PyObject *)object;
}

static void Shape_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    shape_free(((ShapeObject *)self)->shape);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *Shape_run(PyObject *self, PyObject *args)
{
    const struct shape *shape = ((ShapeObject *)self)->shape;
    PyObject *values;
    Py_ssize_t at, most, looked = 0;
    const char *lead;
    Py_ssize_t lead_len;
    if (!PyArg_ParseTuple(args, "O!ny#n", &PyList_Type, &values, &at, &lead, &lead_len, &most))
        return NULL;
    if (at < 0)
        return PyErr_Format(PyExc_ValueError, "no value is before the first");
    for (; at < PyList_GET_SIZE(values) && looked < most; at++) {
        PyObject *each = PyList_GET_ITEM(values, at);
        if (each == Py_None)
            continue;
        if (!PyBytes_Check(each))
            return PyErr_Format(PyExc_TypeError, "a value is bytes or None");
        const char *value = PyBytes_AS_STRING(each);
        const Py_ssize_t len = PyBytes_GET_SIZE(each);
        if (len < lead_len || memcmp(value, lead, (size_t)lead_len) != 0)
            break;
        if (!shape_holds(shape, (const uint8_t *)value + lead_len, (size_t)(len - lead_len)))
            return PyLong_FromSsize_t(~at);
        looked += len + 1;
    }
    return PyLong_FromSsize_t(at);
}

/* barco/_native.pyi says what they do. */
static PyMethodDef shape_methods[] = {
    {"run", Shape_run, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shape_slots[] = {
    {Py_tp_new, Shape_new},
    {Py_tp_dealloc, Shape_dealloc},
    {Py_tp_methods, shape_methods},
    {Py_tp_doc, "What JSON texts surely are."},
    {0, NULL},
};

static PyType_Spec shape_spec = {
    .name = "barco._native.Shape",
    .basicsize = sizeof(ShapeObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = shape_slots,
};

int py_shape_init(PyObject *module);

int py_shape_init(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&shape_spec);
    const int status = type ? PyModule_AddObjectRef(module, "Shape", type) : -1;
    Py_XDECREF(type);
    return status;
}
