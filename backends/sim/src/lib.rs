//! The simulated anyaccel device: virtual clock, chosen interleavings, injected faults, and every raw call counted.
//!
//! A [`SimConfig`] says what is simulated; [`SimConfig::build`] gives the [`Sim`], by which a test steers; [`Sim::driver`]
//! is what the runtime drives. It keeps every rule of the hal that is the backend's, and watches those that are the
//! caller's: a stale handle, a place out of bounds, memory freed under work that is still to come are refused with a
//! precise note, and kept in [`Sim::violations`], which a test asserts to be empty.
//!
//! ```
//! use anyaccel_hal::{Device, Driver, End, HostPtr, Pattern, Place, Until, WaitMode};
//! use anyaccel_sim::{Method, SimConfig};
//!
//! let sim = SimConfig::new().memories([64 << 20]).build();
//! let driver = sim.driver();
//! driver.start()?;
//! let device = driver.open(0)?;
//! let memory = device.alloc(1024)?;
//! let stream = device.create_stream(0)?;
//! let place = Place { mem: memory.mem, offset: 0 };
//! let hold = sim.hold(stream)?;
//! // SAFETY: H1, H4: all handles are live, and the memory holds 1024 bytes.
//! unsafe {
//!     device.fill(stream, place, Pattern::byte(7), 1024)?;
//!     assert_eq!(sim.pending(stream), 2);
//!     hold.release();
//!     let _ended = device.wait_host(stream, Until::Now, None, WaitMode::Auto)?;
//! }
//! assert_eq!(sim.peek(memory.mem, 1000, 3), Some(vec![7; 3]));
//! assert_eq!(sim.calls(Method::Fill), 1);
//! assert_eq!(sim.violations(), []);
//! # Ok::<(), anyaccel_hal::Fault>(())
//! ```
//!
//! # Where work runs
//!
//! With [`Execution::OnLook`], the default, there are no threads: work runs inside of calls, when somebody looks. That
//! is [`completed`](anyaccel_hal::Device::completed), [`wait_host`](anyaccel_hal::Device::wait_host), [`Sim::run`] and
//! [`Sim::step`], and with [`Interleaving::Eager`] every call. A test with one thread repeats exactly. H11's «without
//! further calls» and H13's «three that block» hold only as long as somebody looks; [`Execution::Background`] has threads
//! and keeps them to the letter.

mod builtins;
mod clock;
mod config;
mod counters;
mod device;
mod driver;
mod execute;
mod fault;
mod handle;
mod hold;
mod intervals;
mod kernels;
mod memory;
mod misuse;
mod order;
mod peers;
mod pinned;
mod place;
mod schedule;
pub mod shadow;
mod sim;
mod state;
mod stream;
mod telemetry;
mod virtual_memory;

pub use clock::Costs;
pub use config::{Capabilities, Chooser, Deadlock, DeviceConfig, Execution, Interleaving, Reuse, SimConfig, uuid_of};
pub use counters::{Call, Counts, Method};
pub use driver::SimDriver;
pub use fault::{Injected, Injection};
pub use hold::Hold;
pub use misuse::Violation;
pub use schedule::Executed;
pub use sim::{Live, Sim};
pub use telemetry::{Card, Sensors};
