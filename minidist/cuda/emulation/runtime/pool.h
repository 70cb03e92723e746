// pool.h - the workers that wait for a launch.
#pragma once
#include <mutex>
#include <vector>

struct Worker;

struct Pool {
    std::mutex mutex;
    std::vector<Worker*> idle;
};

std::mutex& pool_mutex();
