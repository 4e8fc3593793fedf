/* cppcheck.h - jansson's loops, so that cppcheck can read what uses them. */
#define json_array_foreach(a, i, v) for (i = 0; i < json_array_size(a) && (v = json_array_get(a, i)); i++)
#define json_object_foreach(o, k, v) for (void *it = json_object_iter(o); it && (k = json_object_iter_key(it)) && (v = json_object_iter_value(it)); it = json_object_iter_next(o, it))
