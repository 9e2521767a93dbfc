//! What the fake does where a backend leans on it: scenarios of one program in C, each with the variables that it needs.

mod common;

use anyaccel_fake_level_zero::{Loader, install};
use common::{folder, present, program, said};
use std::path::PathBuf;
use std::process::Command;

type Variables = [(&'static str, &'static str)];

/// A scenario of the program; where its log is.
fn command(name: &str, scenario: &str, variables: &Variables) -> (Command, PathBuf) {
    let folder = folder(name);
    let installed = install(&folder, Loader::Own(1, 13)).expect("a fake");
    let loader = installed.loader.expect("a loader");
    let log = folder.join("calls");
    let _old = std::fs::remove_file(&log);
    let mut command = program(&folder, "scenarios.c", loader.to_str().expect("text"));
    command.arg(scenario).env("ANYACCEL_FAKE_ZE_LOG", &log).envs(variables.iter().copied());
    (command, log)
}

fn run(scenario: &str, variables: &Variables) -> Vec<String> {
    if !present() {
        return Vec::new();
    }
    let (mut command, log) = command(scenario, scenario, variables);
    assert_eq!(said(&command.output().expect("a program")), "good\n");
    std::fs::read_to_string(log).expect("a log").lines().map(str::to_owned).collect()
}

#[test]
fn sysman_starts_no_runtime() {
    let calls = run("sysman", &[]);
    assert!(calls.iter().all(|call| call.starts_with("zes")), "{calls:?}");
}

#[test]
fn the_runtime_starts_in_a_child_whose_parent_only_counted() {
    run("sysman_then_start", &[]);
}

#[test]
fn sysman_of_the_old_style_takes_the_handles_of_the_runtime() {
    run("old_sysman", &[("ZES_ENABLE_SYSMAN", "1")]);
}

#[test]
fn nothing_but_what_is_said_orders_commands() {
    run("order", &[]);
}

#[test]
fn old_drivers_have_no_lists_in_order() {
    run("old_api", &[("ANYACCEL_FAKE_ZE_API", "1.4")]);
}

#[test]
fn a_lost_card_drops_what_it_had_to_do() {
    run("lost", &[]);
}

#[test]
fn calls_fail_in_a_child_of_a_started_parent() {
    run("forked", &[]);
}

#[test]
fn memory_has_limits() {
    run("limits", &[("ANYACCEL_FAKE_ZE_MEMORY", "33554432"), ("ANYACCEL_FAKE_ZE_HOST_MEMORY", "16777216")]);
}

#[test]
fn calls_fail_by_order() {
    run("failures", &[("ANYACCEL_FAKE_ZE_FAIL", "zeDeviceGetStatus:2:0x70000001,zeContextGetStatus:all:0x7ffffffe")]);
}

#[test]
fn addresses_are_backed_piece_by_piece() {
    run("addresses", &[]);
}

#[test]
fn graphs_are_recorded_and_replayed() {
    run("graphs", &[]);
}

#[test]
fn timers_come_round() {
    run("timer", &[("ANYACCEL_FAKE_ZE_TIMER", "1000000000:40:20:1099511627000")]);
}

#[test]
fn queues_call_functions_of_hosts() {
    run("host_functions", &[]);
}

#[test]
fn cards_may_not_reach_each_other() {
    run("alone", &[("ANYACCEL_FAKE_ZE_PEERS", "0")]);
}

#[test]
fn drivers_start_the_newer_way_too() {
    run("drivers", &[]);
}

#[test]
fn memory_is_freed_once_nothing_uses_it() {
    run("freed_later", &[]);
}

#[test]
fn less_common_commands_do_what_they_say() {
    run("commands", &[]);
}

#[test]
fn devices_are_cards_or_tiles() {
    if !present() {
        return;
    }
    let cards = ("ANYACCEL_FAKE_ZE_DEVICES", "a:integrated,b:tiles2,c");
    let (mut command, _) = command("hierarchy", "hierarchy", &[cards]);
    let mut seen = |variables: &Variables| {
        command.env_remove("ZE_AFFINITY_MASK").env_remove("ZE_FLAT_DEVICE_HIERARCHY");
        said(&command.envs(variables.iter().copied()).output().expect("a program"))
    };
    let flat = |name| ("ZE_FLAT_DEVICE_HIERARCHY", name);
    let mask = |text| ("ZE_AFFINITY_MASK", text);
    // Cards that are whole come before those that share the host's memory.
    assert_eq!(
        seen(&[flat("COMPOSITE")]),
        "1.0 flags 4 parts 2 root 0\n2.0 flags 4 parts 0 root 0\n0.0 flags 1 parts 0 root 0\n"
    );
    let tiles = "1.1 flags 4 parts 0 root 0\n1.2 flags 4 parts 0 root 0\n";
    let others = "2.0 flags 4 parts 0 root 0\n0.0 flags 1 parts 0 root 0\n";
    assert_eq!(seen(&[]), format!("{tiles}{others}"));
    assert_eq!(seen(&[flat("FLAT"), mask("1")]), "1.2 flags 4 parts 0 root 0\n");
    assert_eq!(seen(&[flat("COMBINED")]), format!("1.1 flags 6 parts 0 root 1\n1.2 flags 6 parts 0 root 1\n{others}"));
    assert_eq!(seen(&[flat("COMPOSITE"), mask("0.1")]), "1.2 flags 4 parts 0 root 0\n");
    assert_eq!(
        seen(&[flat("COMPOSITE"), mask("1,0.0,0.1")]),
        "1.0 flags 4 parts 2 root 0\n2.0 flags 4 parts 0 root 0\n"
    );
    // All that is left out, and what is no mask: the driver does not start.
    assert_eq!(seen(&[mask("9")]), "78000001\n");
    assert_eq!(seen(&[mask("x")]), "78000001\n");
}
