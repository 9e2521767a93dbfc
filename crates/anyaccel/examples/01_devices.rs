//! What is there: devices, their properties, and why a backend has none. Starts nothing.

use anyaccel::Runtime;

fn main() -> anyaccel::Result<()> {
    for backend in anyaccel::backends() {
        let how = if backend.chosen_by_itself { "chosen by itself" } else { "used when named" };
        println!("{} ({how})", backend.kind);
        for (index, device) in backend.devices.iter().enumerate() {
            match device {
                Some(info) => println!("  {index}: {}, {} MiB, {:?} cores", info.name, info.memory >> 20, info.cores),
                None => println!("  {index}: known once it is open"),
            }
        }
        if let Some(absence) = backend.probe.and_then(|probe| probe.absence) {
            println!("  none: {absence:?}");
        }
    }

    let runtime = Runtime::builder().backend("host").build()?;
    println!("accelerator: {:?}, {} device(s)", runtime.current_accelerator(true), runtime.device_count());
    println!("dtypes: {:?}", runtime.get_device_capability(0)?.supported_dtypes);
    assert!(!runtime.is_started());
    Ok(())
}
