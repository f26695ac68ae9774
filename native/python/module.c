/* barco._native: the module object. Each py_*.c adds its own functions and types to it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int py_batch_init(PyObject *module);
int py_check_init(PyObject *module);
int py_codec_init(PyObject *module);
int py_columns_init(PyObject *module);
int py_delays_init(PyObject *module);
int py_disk_init(PyObject *module);
int py_feed_init(PyObject *module);
int py_headers_init(PyObject *module);
int py_lent_init(PyObject *module);
int py_reactor_init(PyObject *module);
int py_render_init(PyObject *module);
int py_seal_init(PyObject *module);
int py_shape_init(PyObject *module);
int py_shipped_init(PyObject *module);
int py_stages_init(PyObject *module);
int py_state_init(PyObject *module);
int py_tls_init(PyObject *module);

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "barco._native",
    "The C core of barco: what happens once per event.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (py_batch_init(module) < 0 ||
        py_check_init(module) < 0 ||
        py_codec_init(module) < 0 ||
        py_columns_init(module) < 0 ||
        py_delays_init(module) < 0 ||
        py_disk_init(module) < 0 ||
        py_feed_init(module) < 0 ||
        py_headers_init(module) < 0 ||
        py_lent_init(module) < 0 ||
        py_reactor_init(module) < 0 ||
        py_render_init(module) < 0 ||
        py_seal_init(module) < 0 ||
        py_shape_init(module) < 0 ||
        py_shipped_init(module) < 0 ||
        py_stages_init(module) < 0 ||
        py_state_init(module) < 0 ||
        py_tls_init(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
