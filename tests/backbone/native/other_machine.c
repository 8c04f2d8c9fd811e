/* Serves a library of kernels to a process on another kind of machine: requests on standard input, results on standard
 * output. All memory that a call reads or writes lies in a file that both processes map. */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    char name[32];
    int64_t arguments[2];
} request;

/* The arguments are pointers. By the rules of calls on aarch64, more arguments than a function has do no harm: one type fits
 * all kernels. */
typedef int64_t kernel(int64_t, int64_t);

/* The arguments are the library, the file, and the file's size. The first result is the file's address. */
int main(int count, char **arguments) {
    if (count != 4) return 2;
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    const int file = open(arguments[2], O_RDWR);
    const void *base = mmap(NULL, (size_t)atoll(arguments[3]), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base == MAP_FAILED || write(1, &base, sizeof base) < 0) return 1;
    for (request r; read(0, &r, sizeof r) == sizeof r;) {
        kernel *called = (kernel *)dlsym(library, r.name);
        if (!called) return fprintf(stderr, "%s\n", dlerror()), 1;
        const int64_t result = called(r.arguments[0], r.arguments[1]);
        if (write(1, &result, sizeof result) < 0) return 1;
    }
    return 0;
}
