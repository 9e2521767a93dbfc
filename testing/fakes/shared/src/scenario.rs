//! Tests whose cases need a process each, since what a fake is like is said by variables, and a library is loaded once a process.
//!
//! A test is a program without a harness (`harness = false`) whose `main` calls [`run`] with its scenarios and with how a
//! process comes to its fake. The program starts itself once for each scenario:
//!
//! ```no_run
//! use anyaccel_fake::library;
//! use anyaccel_fake::scenario::{self, Scenario, calls};
//! use std::io;
//! use std::path::{Path, PathBuf};
//! use std::process::{Command, ExitCode};
//!
//! const ALL: &[Scenario] = &[
//!     Scenario::new("looking_starts_nothing", || assert!(!calls().contains(&"vendorInit".to_owned()))),
//!     Scenario::new("an_old_driver", || ()).with(&[("FAKE_VENDOR_VERSION", "1.0")]),
//! ];
//!
//! /// Puts the library that Cargo built beside this test where the process of the scenario finds it.
//! fn prepare(scenario: &Scenario, process: &mut Command) -> io::Result<PathBuf> {
//!     // A test has env!("CARGO_TARGET_TMPDIR").
//!     let folder = Path::new("target/tmp").join(scenario.value("FAKE_VENDOR_VERSION").unwrap_or("2.0"));
//!     library::place(&library::built("anyaccel_fake_vendor")?, &folder, "libvendor.so.1")?;
//!     process.env_remove("VENDOR_VISIBLE_DEVICES").env("ANYACCEL_VENDOR_LIBRARY", folder.join("libvendor.so.1"));
//!     Ok(folder)
//! }
//!
//! fn main() -> ExitCode {
//!     scenario::run(&[ALL], "FAKE_VENDOR_LOG", prepare)
//! }
//! ```

use std::borrow::Cow;
use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Tells a process which scenario it is.
const CHOICE: &str = "ANYACCEL_TEST_SCENARIO";
/// Where its fake is.
const FOLDER: &str = "ANYACCEL_TEST_FOLDER";
/// The file that its fake writes calls to.
const LOG: &str = "ANYACCEL_TEST_LOG";

/// A scenario: its name, the variables that it needs, and what it does. A panic is its failure.
#[derive(Clone, Debug)]
pub struct Scenario {
    name: Cow<'static, str>,
    variables: &'static [(&'static str, &'static str)],
    computed: Vec<(&'static str, String)>,
    run: fn(),
}

impl Scenario {
    /// A scenario without variables.
    pub const fn new(name: &'static str, run: fn()) -> Self {
        Self { name: Cow::Borrowed(name), variables: &[], computed: Vec::new(), run }
    }

    /// One of many whose names are computed.
    pub const fn named(name: String, run: fn()) -> Self {
        Self { name: Cow::Owned(name), variables: &[], computed: Vec::new(), run }
    }

    /// With these variables, in place of others given this way.
    #[must_use]
    pub const fn with(mut self, variables: &'static [(&'static str, &'static str)]) -> Self {
        self.variables = variables;
        self
    }

    /// With one more variable.
    #[must_use]
    pub fn set(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.computed.push((name, value.into()));
        self
    }

    /// The value of a variable that the scenario sets.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.environment().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let computed = self.computed.iter().map(|(name, value)| (*name, value.as_str()));
        self.variables.iter().copied().chain(computed)
    }

    /// Runs it in a process of its own.
    fn passes(&self, log: &str, prepare: &impl Fn(&Self, &mut Command) -> io::Result<PathBuf>) -> io::Result<bool> {
        let mut process = Command::new(env::current_exe()?);
        let folder = prepare(self, &mut process)?;
        let calls = folder.join(format!("{}.log", self.name));
        // It may not be there yet.
        let _old = fs::remove_file(&calls);
        process.env(CHOICE, &*self.name).env(FOLDER, folder).env(LOG, &calls).env(log, &calls);
        Ok(process.envs(self.environment()).stdin(Stdio::null()).status()?.success())
    }
}

/// What `main` of such a test does: runs the scenarios whose names contain one of the program's arguments, all without any, and
/// says of each how it went; in a process that was started for a scenario, runs that one.
///
/// `prepare` installs the fake, tells the process by its variables where, clears those of the machine that would change what it
/// sees, and returns the folder. The scenario's own variables win over it. `log` is the variable that names the file to which the
/// fake writes its calls, for [`calls`].
pub fn run(
    lists: &[&[Scenario]],
    log: &str,
    prepare: impl Fn(&Scenario, &mut Command) -> io::Result<PathBuf>,
) -> ExitCode {
    let all = || lists.iter().copied().flatten();
    if let Ok(name) = env::var(CHOICE) {
        let Some(scenario) = all().find(|scenario| scenario.name == name) else { return ExitCode::FAILURE };
        (scenario.run)();
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut failed = 0;
    for scenario in all() {
        if !wanted.is_empty() && !wanted.iter().any(|name| scenario.name.contains(name)) {
            continue;
        }
        let passed = scenario.passes(log, &prepare).unwrap_or_else(|error| {
            println!("no process with a fake driver: {error}");
            false
        });
        println!("test {} ... {}", scenario.name, if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Where the fake of this scenario is.
///
/// # Panics
/// Outside of a scenario.
pub fn folder() -> PathBuf {
    env::var_os(FOLDER).expect("the scenario's folder").into()
}

/// The calls that this scenario has made so far.
///
/// # Panics
/// Outside of a scenario.
pub fn calls() -> Vec<String> {
    let text = fs::read_to_string(env::var_os(LOG).expect("the scenario's log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
