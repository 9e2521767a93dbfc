//! A kernel of one's own: a Rust function with a grid, and a host function after it.

use anyaccel::{DType, Launch, LaunchArg, Runtime};
use std::sync::mpsc;

fn main() -> anyaccel::Result<()> {
    let runtime = Runtime::builder().backend("host").build()?;
    let stream = runtime.stream(())?;

    const N: usize = 1 << 20;
    const GROUPS: u32 = 64;
    let saxpy = runtime.host_kernel((), |group, args| {
        let share = N / group.groups[0] as usize;
        let first = share * group.index[0] as usize;
        // SAFETY: the launch below passes two buffers of N floats and one float; each group has elements of its own.
        let (y, x, a) = unsafe {
            (
                std::slice::from_raw_parts_mut(args[0].ptr.cast::<f32>().add(first), share),
                std::slice::from_raw_parts(args[1].ptr.cast::<f32>().add(first), share),
                args[2].ptr.cast::<f32>().read_unaligned(),
            )
        };
        y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
    })?;

    let (x, y) = (runtime.alloc(4 * N as u64)?, runtime.alloc(4 * N as u64)?);
    stream.fill(&x.all(), &3f32.to_le_bytes())?;
    stream.fill(&y.all(), &1f32.to_le_bytes())?;
    let args = [LaunchArg::Buffer(y.all()), LaunchArg::Buffer(x.all()), LaunchArg::Bytes(&2f32.to_le_bytes())];
    // SAFETY: the arguments are those that the kernel reads above, and this stream alone uses the buffers.
    unsafe { stream.launch(&saxpy, Launch::linear(GROUPS, 1), &args)? };

    // Convert the result to bfloat16 on the device.
    let half = runtime.alloc(2 * N as u64)?;
    stream.convert(&half.all(), DType::Bf16, &y.all(), DType::F32)?;

    let (sender, receiver) = mpsc::channel();
    stream.host_fn(move || sender.send("everything before me has ended").unwrap_or(()))?;
    stream.synchronize()?;
    println!("{}", receiver.recv().unwrap_or("the host function did not run"));

    let mut first = [0; 4];
    stream.download(&mut first, &y.slice(..4)?)?;
    assert_eq!(f32::from_le_bytes(first), 7.0);
    Ok(())
}
