// pool.h - the workers that wait for a launch, and the one lock of the runtime.
#pragma once
#include <condition_variable>
#include <mutex>
#include <vector>

struct Worker;

struct Pool {
    std::mutex mutex;
    std::condition_variable ended;  // a worker has no block left
    std::vector<Worker*> idle;
};

// A child that was forked has another pool than its parent.
extern Pool* pool;
