// faults.h - what the processor and the operating system tell us about a kernel, by signals.
#pragma once
#include <signal.h>

// Sent by md_wait to the workers of a launch. By default this signal is ignored, so that one too
// many does no harm.
const int TICK = SIGURG;

void install_handlers();     // for the process; again, if somebody else has replaced them
void prepare_for_faults();   // for a worker: a stack for the handlers
