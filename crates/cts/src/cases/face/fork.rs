//! What a fork does, and how a process ends: cases that run in a process of their own.

use crate::case::{Capability, Case};
use crate::env::Env;
use crate::fork::{FAILING, FROZEN, HIDDEN, RESTARTS, script};

const CHILD: &[Capability] = &[Capability::Child];

const fn case(id: &'static str, sentences: &'static [&'static str], run: fn(&Env) -> crate::case::Outcome) -> Case {
    Case::face(id, sentences, run).needs(CHILD).devices(2)
}

pub(super) const CASES: &[Case] = &[
    case("fork.while-fresh", &["fork.fresh"], |env| script(env, "fresh", FROZEN)),
    case("fork.restarts", &["fork.restart", "fork.stale", "fork.current-index"], restarts),
    case("fork.graphs", &["fork.stale", "fork.restart"], graphs),
    case(
        "fork.one-error",
        &["fork.one-error", "fork.text", "fork.no-ops", "fork.count", "fork.current-index"],
        |env| script(env, "frozen", FROZEN),
    ),
    case("fork.innocent-queries", &["fork.innocent", "start.nothing-else", "scenario.6"], |env| {
        script(env, "innocent", FROZEN)
    }),
    case("fork.culprits", &["fork.culprit", "start.marked", "scenario.6"], |env| script(env, "culprits", FROZEN)),
    case("fork.no-devices-no-trace", &["fork.no-trace", "scenario.6"], |env| script(env, "no-trace", HIDDEN)),
    case("fork.failed-start-no-trace", &["fork.no-trace"], |env| script(env, "failed-start", FAILING)),
    case("fork.no-deadlock/restarts", &["fork.no-deadlock"], no_deadlock).rules(&[24]),
    case("fork.no-deadlock/frozen", &["fork.no-deadlock"], |env| script(env, "hammer", FROZEN)),
    case("fork.no-deadlock/start", &["fork.no-deadlock"], no_deadlock_in_start).rules(&[24]),
    case("process.discovery-is-quiet", &[], |env| script(env, "quiet", RESTARTS)).rules(&[22]),
    case("process.threads-end", &[], |env| script(env, "threads-end", RESTARTS)).rules(&[25]),
    // Work of an hour is under way then: nobody waits for it.
    case("process.exit", &["exit.quiet"], |env| script(env, "exit", RESTARTS)),
    case("process.exit/thread-local", &["exit.quiet"], |env| script(env, "exit-thread-local", RESTARTS)),
    case("process.unknown-backend", &["environment.bad"], |env| script(env, "unknown-backend", "no_such_backend")),
];

fn restartable(env: &Env) -> crate::case::Outcome {
    if env.driver()?.restartable() { Ok(()) } else { crate::case::skip("the kind can't start again in a child") }
}

fn restarts(env: &Env) -> crate::case::Outcome {
    restartable(env)?;
    script(env, "restart", RESTARTS)
}

fn graphs(env: &Env) -> crate::case::Outcome {
    restartable(env)?;
    script(env, "graphs", RESTARTS)
}

fn no_deadlock(env: &Env) -> crate::case::Outcome {
    restartable(env)?;
    script(env, "hammer", RESTARTS)
}

fn no_deadlock_in_start(env: &Env) -> crate::case::Outcome {
    restartable(env)?;
    script(env, "hammer-start", RESTARTS)
}
