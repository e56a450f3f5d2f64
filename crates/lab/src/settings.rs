//! The files and arguments with which a node is started.

use std::{collections::BTreeMap, fmt::Write, fs, net::Ipv4Addr, path::Path};

use serde_json::{Value, json};

use crate::{
    Install, LabError, Node, Profile, RingSpec,
    error::Trying,
    net::{CQL_PORT, INTERNODE_PORT},
    process,
    tokens::TOKENS_PER_NODE,
};

/// What the server's own start script opens to it on Java 17.
const MODULES: &[&str] = &[
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.management.rmi/com.sun.jmx.remote.internal.rmi=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.server=ALL-UNNAMED",
    "--add-exports=java.sql/java.sql=ALL-UNNAMED",
    "--add-exports=java.base/java.lang.ref=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "--add-exports=jdk.compiler/com.sun.tools.javac.file=ALL-UNNAMED",
    "--add-exports=jdk.attach/sun.tools.attach=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.module=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.loader=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.reflect=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.math=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.module=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.util.jar=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=jdk.compiler/com.sun.tools.javac=ALL-UNNAMED",
];

/// Writes what the node reads at its start.
pub(crate) fn write(spec: &RingSpec, node: &Node, seeds: &[String], dc_nodes: usize) -> Result<(), LabError> {
    let conf = node.dir.join("conf");
    for dir in [&conf, &node.dir.join("log"), &node.dir.join("triggers")] {
        fs::create_dir_all(dir).trying(|| format!("cannot make {}", dir.display()))?;
    }
    let rackdc = format!("dc={}\nrack={}\nprefer_local=false\n", node.dc, node.rack);
    for (name, text) in [
        ("cassandra.yaml", yaml(&server(spec, node, seeds, dc_nodes))),
        ("cassandra-rackdc.properties", rackdc),
        ("logback.xml", logback(&node.log())),
    ] {
        let path = conf.join(name);
        fs::write(&path, text).trying(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What is not here keeps the server's own default.
fn server(spec: &RingSpec, node: &Node, seeds: &[String], dc_nodes: usize) -> BTreeMap<String, Value> {
    let dir = |name: &str| json!(node.dir.join(name));
    let mut settings: BTreeMap<String, Value> = [
        ("cluster_name", json!("mobimir-lab")),
        ("num_tokens", json!(TOKENS_PER_NODE)),
        ("partitioner", json!("org.apache.cassandra.dht.Murmur3Partitioner")),
        (
            "seed_provider",
            json!([{
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{ "seeds": seeds.join(",") }],
            }]),
        ),
        ("endpoint_snitch", json!("GossipingPropertyFileSnitch")),
        ("listen_address", json!(node.address)),
        ("rpc_address", json!(node.address)),
        ("storage_port", json!(INTERNODE_PORT)),
        ("native_transport_port", json!(CQL_PORT)),
        ("data_file_directories", json!([node.dir.join("data")])),
        ("commitlog_directory", dir("commitlog")),
        ("hints_directory", dir("hints")),
        ("saved_caches_directory", dir("saved_caches")),
        ("cdc_raw_directory", dir("cdc_raw")),
        ("cdc_enabled", json!(false)),
        ("commitlog_sync", json!("periodic")),
        ("commitlog_sync_period", json!("10000ms")),
        ("commitlog_segment_size", json!("16MiB")),
        ("commitlog_total_space", json!("256MiB")),
        ("memtable_heap_space", json!("96MiB")),
        ("memtable_offheap_space", json!("96MiB")),
        ("memtable_allocation_type", json!("heap_buffers")),
        ("disk_optimization_strategy", json!("ssd")),
        ("disk_failure_policy", json!("stop")),
        ("commit_failure_policy", json!("stop")),
        ("auto_snapshot", json!(false)),
        ("hinted_handoff_enabled", json!(true)),
        ("max_hint_window", json!("3h")),
        ("hinted_handoff_throttle", json!("10MiB")),
        ("hints_flush_period", json!("2s")),
        ("phi_convict_threshold", json!(spec.phi)),
        ("concurrent_reads", json!(16)),
        ("concurrent_writes", json!(16)),
        ("concurrent_counter_writes", json!(8)),
        ("concurrent_compactors", json!(1)),
        ("compaction_throughput", json!("0MiB/s")),
        ("stream_throughput_outbound", json!("0MiB/s")),
        ("file_cache_size", json!("64MiB")),
        ("key_cache_size", json!("16MiB")),
        ("row_cache_size", json!("0MiB")),
        ("counter_cache_size", json!("0MiB")),
        ("networking_cache_size", json!("16MiB")),
        ("prepared_statements_cache_size", json!("16MiB")),
        ("read_request_timeout", json!("2s")),
        ("write_request_timeout", json!("2s")),
        ("range_request_timeout", json!("10s")),
        ("request_timeout", json!("10s")),
        ("materialized_views_enabled", json!(true)),
        ("user_defined_functions_enabled", json!(true)),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    if node.tokens.is_empty() {
        // More replicas than racks would be refused.
        settings.insert("allocate_tokens_for_local_replication_factor".into(), json!(dc_nodes.clamp(1, 3)));
    } else {
        let tokens: Vec<String> = node.tokens.iter().map(i64::to_string).collect();
        settings.insert("initial_token".into(), json!(tokens.join(",")));
    }
    settings.extend(spec.extra_yaml.clone());
    settings
}

/// One key a line; each value is JSON, which YAML contains.
fn yaml(settings: &BTreeMap<String, Value>) -> String {
    let mut text = String::new();
    for (key, value) in settings {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key}: {value}");
    }
    text
}

fn logback(log: &Path) -> String {
    let log = log.display();
    format!(
        r#"<configuration>
  <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"#
    )
}

/// The arguments of java for the server.
pub(crate) fn server_arguments(install: &Install, spec: &RingSpec, node: &Node) -> Vec<String> {
    let dir = node.dir.display();
    let mut arguments = match spec.profile {
        Profile::Test => vec!["-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"],
        Profile::Bench => vec!["-Xmx1G", "-XX:+UseParallelGC"],
    };
    // As root the server locks its memory, so what it starts with stays resident.
    arguments.extend(["-Xms96M", "-Xss256k", "-XX:MaxDirectMemorySize=256M"]);
    arguments.extend(["-XX:+PerfDisableSharedMem", "-XX:+ExitOnOutOfMemoryError"]);
    arguments.push("-Djdk.attach.allowAttachSelf=true");
    arguments.extend(MODULES);
    arguments.extend([
        "-Djava.net.preferIPv4Stack=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.useCacheForAllThreads=true",
        "-Dio.netty.allocator.maxOrder=11",
        "-Dcassandra-foreground=yes",
        // A ring on one machine needs no time to settle, nor to say goodbye.
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        // A node that joins dies if it has not heard of all tables within this time. By default that is 30 s,
        // which a machine with other jobs exceeds.
        "-Dcassandra.schema_delay_ms=600000",
        "-Dcassandra.shutdown_announce_in_ms=0",
        // Known, so not measured at each start.
        "-Dcassandra.memtable.row_overhead_size=180",
    ]);
    if spec.skips_sync() {
        arguments.push("-Dcassandra.skip_sync=true");
    }
    let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    // One that takes over data waits so long to hear of the tables. If it does not, it joins without them, and fails every read.
    let ring_delay_ms = if node.seed { 1_000 } else { 10_000 };
    arguments.push(format!("-Dcassandra.ring_delay_ms={ring_delay_ms}"));
    if let Some(archive) = &install.archive {
        // One that does not fit is ignored by the virtual machine.
        arguments.push(format!("-XX:SharedArchiveFile={}", archive.display()));
    }
    arguments.extend(spec.extra_jvm.iter().cloned());
    let conf = node.dir.join("conf");
    arguments.extend([
        process::marker(&node.dir),
        format!("-Dcassandra.config={}", file_url(&conf.join("cassandra.yaml"))),
        format!("-Dcassandra-rackdc.properties={}", file_url(&conf.join("cassandra-rackdc.properties"))),
        format!("-Dlogback.configurationFile={}", conf.join("logback.xml").display()),
        format!("-Dcassandra.storagedir={dir}"),
        // Native libraries are unpacked there at every start, and would stay behind elsewhere.
        format!("-Djava.io.tmpdir={dir}"),
        format!("-Dcassandra.logdir={dir}/log"),
        format!("-Dcassandra.triggers_dir={dir}/triggers"),
    ]);
    arguments.extend(jmx(node));
    arguments.extend([
        "-cp".to_owned(),
        install.class_path.clone(),
        "org.apache.cassandra.service.CassandraDaemon".to_owned(),
    ]);
    arguments
}

/// Where the node listens for those who read counters: on loopback, or in its namespace.
fn jmx(node: &Node) -> Vec<String> {
    let port = node.jmx_port;
    if node.namespace.is_none() {
        return vec![format!("-Dcassandra.jmx.local.port={port}")];
    }
    vec![
        format!("-Dcassandra.jmx.remote.port={port}"),
        format!("-Dcom.sun.management.jmxremote.rmi.port={port}"),
        "-Dcom.sun.management.jmxremote.authenticate=false".to_owned(),
        format!("-Djava.rmi.server.hostname={}", node.address),
    ]
}

/// The arguments of java for `nodetool`, up to those of the tool itself.
pub(crate) fn nodetool_arguments(install: &Install, host: Ipv4Addr, jmx_port: u16) -> Vec<String> {
    let mut arguments = vec!["-Xmx64M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
    arguments.extend(MODULES);
    let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    arguments.extend([
        format!("-Dlogback.configurationFile={}", install.scratch.join("silent.xml").display()),
        format!("-Dcassandra.storagedir={}", install.scratch.display()),
        "-cp".to_owned(),
        install.class_path.clone(),
        "org.apache.cassandra.tools.NodeTool".to_owned(),
        "-h".to_owned(),
        host.to_string(),
        "-p".to_owned(),
        jmx_port.to_string(),
    ]);
    arguments
}

/// The logging of tools: none.
pub(crate) const SILENT: &str = r#"<configuration>
  <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
  <root level="OFF"/>
</configuration>
"#;

fn file_url(path: &Path) -> String {
    format!("file://{}", path.display().to_string().replace('%', "%25").replace(' ', "%20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(tokens: Vec<i64>) -> Node {
        Node {
            id: 2,
            address: std::net::Ipv4Addr::new(127, 0, 9, 2),
            namespace: None,
            dc: "dc1".to_owned(),
            rack: "r2".to_owned(),
            jmx_port: 12_000,
            pid: None,
            seed: !tokens.is_empty(),
            tokens,
            dir: "/tmp/a ring/node2".into(),
        }
    }

    #[test]
    fn a_key_of_the_spec_takes_the_place_of_the_labs_own() {
        let spec = RingSpec::for_tests(3)
            .with("write_request_timeout", "500ms")
            .with("hinted_handoff_enabled", false)
            .with("cas_contention_timeout", "1s");
        let text = yaml(&server(&spec, &node(vec![-5, 7]), &["127.0.9.1".into(), "127.0.9.2".into()], 3));
        let lines = |key: &str| -> Vec<&str> { text.lines().filter(|line| line.starts_with(key)).collect() };
        assert_eq!(lines("write_request_timeout"), ["write_request_timeout: \"500ms\""]);
        assert_eq!(lines("hinted_handoff_enabled"), ["hinted_handoff_enabled: false"]);
        assert_eq!(lines("cas_contention_timeout"), ["cas_contention_timeout: \"1s\""]);
        assert_eq!(lines("read_request_timeout"), ["read_request_timeout: \"2s\""]);
        assert_eq!(lines("phi_convict_threshold"), ["phi_convict_threshold: 5.0"]);
        assert_eq!(lines("initial_token"), ["initial_token: \"-5,7\""]);
        assert_eq!(lines("listen_address"), ["listen_address: \"127.0.9.2\""]);
        assert!(lines("seed_provider")[0].contains("127.0.9.1,127.0.9.2"));
        let keys: Vec<&str> = text.lines().filter_map(|line| line.split(':').next()).collect();
        let mut unique = keys.clone();
        unique.dedup();
        assert_eq!(keys, unique, "a key that comes twice is an error to the server");
    }

    #[test]
    fn a_node_that_joins_chooses_its_tokens() {
        let text = yaml(&server(&RingSpec::for_tests(2), &node(Vec::new()), &["127.0.9.1".into()], 2));
        assert!(text.contains("allocate_tokens_for_local_replication_factor: 2\n"), "{text}");
        assert!(!text.contains("initial_token"));
    }

    #[test]
    fn only_tests_skip_the_disk() {
        let install = Install {
            java: "java".into(),
            class_path: "a.jar".into(),
            archive: None,
            probe_classes: "probe".into(),
            scratch: "scratch".into(),
        };
        let skips = |spec: &RingSpec| {
            let arguments = server_arguments(&install, spec, &node(vec![1]));
            assert!(arguments.contains(&"-Dmobimir.lab.node=/tmp/a ring/node2/".to_owned()));
            assert!(
                arguments
                    .iter()
                    .any(|argument| argument.contains("file:///tmp/a%20ring/node2/conf/cassandra.yaml"))
            );
            arguments.iter().any(|argument| argument.contains("skip_sync"))
        };
        assert!(skips(&RingSpec::for_tests(1)));
        assert!(!skips(&RingSpec::new(&[1], Profile::Test)));
        assert!(!skips(&RingSpec::for_tests(1).with_profile(Profile::Bench)));
    }
}
