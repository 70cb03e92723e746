// launch.cpp - the pool of workers, and the functions that Python calls.
//
//     Python's thread            pool                       workers
//     md_launch  --- a launch -->  idle: [w3 w1]  --wake-->  w1: block 0, block 2, block 3
//     md_wait   (every 10 ms: a tick, see faults.cpp)        w3: block 1, block 4
//     md_end    <-- outcome ---   idle: [w3 w1]  <---------  no block is left
//
// A worker takes the next block when it has ended one, as a GPU's processors do. Workers outlive
// launches, since starting a thread takes longer than running a small kernel.
#include "launch.h"

#include <string.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "faults.h"
#include "pool.h"
#include "worker.h"

static const int TICK_MS = 10;

Pool* pool = new Pool;  // never deleted: its workers wait until the process ends

// A forked child has the memory of its parent, but none of its threads: it begins with no workers.
static const int at_fork = pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });

static void* work(void* argument) {
    Worker* worker = (Worker*)argument;
    self = worker;
    prepare_for_faults();
    for (;;) {
        while (sem_wait(&worker->wake) != 0) continue;  // interrupted by a signal
        Launch& launch = *worker->launch;
        run_blocks(*worker, launch);
        std::lock_guard<std::mutex> lock(pool->mutex);
        worker->launch = nullptr;
        pool->idle.push_back(worker);
        if (--launch.running == 0) pool->ended.notify_all();
    }
    return nullptr;
}

// nullptr: the system has no thread left.
static Worker* idle_worker() {
    if (!pool->idle.empty()) {
        Worker* worker = pool->idle.back();
        pool->idle.pop_back();
        return worker;
    }
    auto worker = new Worker;
    sem_init(&worker->wake, 0, 0);
    if (pthread_create(&worker->system_thread, nullptr, work, worker) != 0) {
        delete worker;
        return nullptr;
    }
    pthread_detach(worker->system_thread);
    return worker;
}

// A permutation of the blocks that needs no table: steps of a size that has no divisor in common
// with their number meet every block once.
uint64_t Launch::block_number(uint64_t turn) const {
    if (config.order == MD_REVERSE) return blocks - 1 - turn;
    if (config.order != MD_RANDOM) return turn;
    return (uint64_t)(((unsigned __int128)turn * stride + config.seed) % blocks);
}

void* md_launch(const md_config* config) {
    install_handlers();
    auto launch = new Launch;
    launch->config = *config;
    launch->module = find_module(config->inside);
    launch->blocks = (uint64_t)config->grid[0] * config->grid[1] * config->grid[2];
    if (launch->blocks && config->order == MD_RANDOM) {
        uint64_t state = config->seed;
        do launch->stride = next_random(state) % launch->blocks + 1;
        while (std::gcd(launch->stride, launch->blocks) != 1);
    }
    const uint64_t wanted = std::min<uint64_t>(std::max(config->workers, 1u), launch->blocks);
    std::lock_guard<std::mutex> lock(pool->mutex);
    while (launch->workers.size() < wanted) {
        Worker* worker = idle_worker();
        if (!worker) {
            pool->idle.insert(pool->idle.end(), launch->workers.begin(), launch->workers.end());
            delete launch;
            return nullptr;
        }
        launch->workers.push_back(worker);
    }
    launch->running = (uint32_t)wanted;
    for (Worker* worker : launch->workers) {
        worker->launch = launch;
        sem_post(&worker->wake);
    }
    return launch;
}

static void tick(const Launch& launch) {
    for (Worker* worker : launch.workers) pthread_kill(worker->system_thread, TICK);
}

int md_wait(void* handle, int milliseconds) {
    Launch& launch = *(Launch*)handle;
    std::unique_lock<std::mutex> lock(pool->mutex);
    const auto done = [&] { return launch.running == 0; };
    for (int left = milliseconds; !done(); left -= TICK_MS) {
        if (left <= 0) return 0;
        const auto step = std::chrono::milliseconds(std::min(left, TICK_MS));
        if (pool->ended.wait_for(lock, step, done)) break;
        if (launch.config.preempt || launch.stop) tick(launch);
    }
    return 1;
}

void md_stop(void* handle) {
    Launch& launch = *(Launch*)handle;
    int go_on = MD_GO_ON;
    launch.stop.compare_exchange_strong(go_on, MD_STOP_ASKED);
    std::lock_guard<std::mutex> lock(pool->mutex);
    if (launch.running) tick(launch);
}

void md_end(void* handle, md_outcome* outcome) {
    Launch* launch = (Launch*)handle;
    while (!md_wait(handle, TICK_MS)) md_stop(handle);
    md_outcome& result = launch->outcome;
    if (result.kind == MD_FINISHED && launch->ended < launch->blocks) {
        result.kind = MD_STOPPED;
        strcpy(result.text, "no block had begun\n");
    }
    *outcome = result;
    delete launch;
}
