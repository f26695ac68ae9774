/* barco_faces: what only tests ask of the core, as a module of Python's that no wheel has. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int faces_codec_init(PyObject *module);
int faces_http_init(PyObject *module);

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "barco_faces", "What only tests ask of the core.", -1, NULL, NULL, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC PyInit_barco_faces(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (faces_codec_init(module) < 0 || faces_http_init(module) < 0))
        Py_CLEAR(module);
    return module;
}
