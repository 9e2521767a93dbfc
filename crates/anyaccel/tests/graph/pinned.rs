use crate::{current, everywhere, graph, refused};
use anyaccel::{Error, GraphError};

#[test]
fn views_and_replays_keep_out_of_each_others_way() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let (mut input, mut output) = (runtime.pinned(64).unwrap(), runtime.pinned(64).unwrap());
        input.as_mut_slice().unwrap().fill(1);
        let device = runtime.alloc(64).unwrap();
        let graph = graph(runtime);
        graph
            .capture(|| {
                stream.upload_pinned(&device.all(), &input, 0)?;
                stream.download_pinned(&mut output, 0, &device.all())
            })
            .unwrap();
        assert_eq!(input.as_slice().unwrap(), [1; 64], "replays only read it");
        assert!(matches!(refused(input.as_mut_slice().map(|_| ())), GraphError::PinnedInGraph));
        assert!(matches!(refused(output.as_slice().map(|_| ())), GraphError::PinnedInGraph));
        for round in 2..20 {
            input.with_mut(|bytes| bytes.fill(round)).unwrap();
            graph.replay().unwrap();
            assert_eq!(output.with(|bytes| bytes.to_vec()).unwrap(), [round; 64]);
        }
        let told = input.with_mut(|_| graph.replay()).unwrap();
        assert!(matches!(refused(told), GraphError::Viewed));
        let told = output.with(|_| graph.replay()).unwrap();
        assert!(matches!(refused(told), GraphError::Viewed));
        graph.replay().unwrap();
        drop(graph);
        // No replay can begin any more; the last one is waited for.
        assert_eq!(output.as_slice().unwrap(), [19; 64]);
        input.as_mut_slice().unwrap().fill(0);
    });
}

#[test]
fn a_capture_that_was_given_up_releases_its_pinned_memory() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let mut host = runtime.pinned(64).unwrap();
        let device = runtime.alloc(64).unwrap();
        let graph = graph(runtime);
        let scope = graph.scope().unwrap();
        stream.download_pinned(&mut host, 0, &device.all()).unwrap();
        assert!(host.as_slice().is_err());
        drop(scope);
        host.as_mut_slice().unwrap().fill(3);
        drop(host);
        runtime.empty_host_cache().unwrap();
    });
}

#[test]
fn small_uploads_travel_with_the_graph() {
    everywhere(|runtime| {
        let stream = current(runtime);
        let device = runtime.alloc(60 << 10).unwrap();
        let graph = graph(runtime);
        graph
            .capture(|| {
                let mut bytes = vec![4; 60 << 10];
                stream.upload(&device.all(), &bytes)?;
                bytes.fill(0);
                Ok::<(), Error>(())
            })
            .unwrap();
        runtime.empty_host_cache().unwrap();
        drop(runtime.pinned(60 << 10).unwrap());
        graph.replay_n(3).unwrap();
        assert!(device.to_vec().unwrap().iter().all(|&byte| byte == 4));
    });
}
