use crate::{current, everywhere, graph, refused};
use anyaccel::{Error, GraphError, GraphUpdate, Launch, LaunchArg};

#[test]
fn values_and_buffers_change_without_a_new_capture() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let (a, b, c) = (runtime.zeros(8).unwrap(), runtime.zeros(8).unwrap(), runtime.zeros(8).unwrap());
        let add = runtime
            .host_kernel((), |_, args| {
                // SAFETY: 8 bytes each.
                unsafe { *args[0].ptr.cast::<u64>() += args[1].ptr.cast::<u64>().read_unaligned() };
            })
            .unwrap();
        let graph = graph(runtime);
        graph
            .capture(|| {
                let one = 1_u64.to_le_bytes();
                let args = [LaunchArg::Buffer(a.all()), LaunchArg::Bytes(&one)];
                // SAFETY: the arguments that the kernel expects.
                unsafe { stream.launch(&add, Launch::linear(1, 1), &args)? };
                stream.copy(&b.all(), &a.all())
            })
            .unwrap();
        let value = |buffer: &anyaccel::Buffer| u64::from_le_bytes(buffer.to_vec().unwrap().try_into().unwrap());
        graph.replay().unwrap();
        assert_eq!(value(&b), 1);

        let ten = 10_u64.to_le_bytes();
        let argument = |node, argument, value| GraphUpdate::Argument { node, argument, value };
        // Replays that are enqueued are not touched.
        graph.replay_n(5).unwrap();
        // SAFETY: a value of the same form.
        unsafe { graph.update(&[argument(0, 1, LaunchArg::Bytes(&ten))]).unwrap() };
        graph.replay().unwrap();
        assert_eq!(value(&b), 16);

        // SAFETY: as long as the old one, and used by nothing else.
        unsafe { graph.update(&[GraphUpdate::Buffer { old: &a, new: &c }]).unwrap() };
        graph.replay_n(2).unwrap();
        assert_eq!((value(&a), value(&b), value(&c)), (16, 20, 20));
        // SAFETY: it is refused: the copy would have equal ends.
        let told = unsafe { graph.update(&[GraphUpdate::Buffer { old: &c, new: &b }]) };
        assert!(matches!(refused(told), GraphError::Update { node: 1, .. }));
        drop(c);
        graph.replay().unwrap();
        assert_eq!(value(&b), 30);

        let short = runtime.zeros(4).unwrap();
        let far = runtime.zeros(8).unwrap();
        // SAFETY: all of these are refused.
        let told = unsafe {
            [
                graph.update(&[argument(9, 0, LaunchArg::Local(0))]),
                graph.update(&[argument(1, 0, LaunchArg::Local(0))]),
                graph.update(&[argument(0, 5, LaunchArg::Local(0))]),
                graph.update(&[argument(0, 1, LaunchArg::Bytes(&[1]))]),
                graph.update(&[argument(0, 0, LaunchArg::Bytes(&ten))]),
                graph.update(&[GraphUpdate::Buffer { old: &far, new: &a }]),
                graph
                    .update(&[argument(0, 1, LaunchArg::Bytes(&[7; 8])), GraphUpdate::Buffer { old: &b, new: &short }]),
            ]
        };
        let [none, copy, arguments, length, form, unused, range] = told;
        assert!(matches!(refused(none), GraphError::NoNode { node: 9, count: 2 }));
        for told in [copy, arguments, length, form] {
            assert!(matches!(refused(told), GraphError::Update { .. }));
        }
        assert!(matches!(refused(unused), GraphError::NotUsed));
        assert!(matches!(range, Err(Error::Range { .. })), "{range:?}");
        graph.replay().unwrap();
        assert_eq!(value(&b), 40, "nothing was changed by what was refused");
    });
}
