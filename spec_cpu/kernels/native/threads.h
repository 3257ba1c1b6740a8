// Threads of GNU OpenMP, called by its binary interface.
//
// llama.cpp's threads are GNU OpenMP's, too, and between two libraries of threads each would spin at
// its barriers on the cores that the other's need. A compiler translates OpenMP's pragmas for the
// library that it comes with, clang++ for its own; these calls are the same with every compiler.
#pragma once

extern "C" {
void GOMP_parallel(void (*function)(void *), void * data, unsigned threads, unsigned flags);
void GOMP_barrier();
int omp_get_thread_num();
int omp_get_num_threads();
}

namespace spec_cpu {

// Calls `body` in `threads` threads at once, this one among them; 0: in as many as OpenMP is set to.
template <class Body> void in_threads(int threads, Body body) {
    GOMP_parallel([](void * data) { (*static_cast<Body *>(data))(); }, &body, unsigned(threads), 0);
}

}  // namespace spec_cpu
