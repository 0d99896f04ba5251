//! Commands, attached containers, copied files, forwarded ports and logs, by
//! kubectl.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::thread;

use crate::harness::{Cluster, Kubectl, Program, alone, need, processes, until};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts success and returns what was written.
#[track_caller]
fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn run_pod(k: &Kubectl, name: &str, script: &str) {
    k.run_of(&[
        "run",
        name,
        "--image=host",
        "--restart=Never",
        "--command",
        "--",
        "sh",
        "-c",
        script,
    ]);
    phase(k, name, "Running");
}

fn phase(k: &Kubectl, name: &str, wanted: &str) {
    until(&format!("pod {name} {wanted}"), || {
        let phase = k.run(&format!("get pod {name} -o jsonpath={{.status.phase}}"));
        if phase == wanted { Ok(()) } else { Err(phase) }
    });
}

#[test]
fn commands_run_beside_a_container() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    run_pod(&k, "box", "sleep 36021");

    assert_eq!(k.run("exec box -- echo hello"), "hello\n");
    assert_eq!(k.run("exec box -- printenv HOSTNAME"), "box\n");
    let out = k.output_of(&[
        "exec",
        "box",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7",
    ]);
    assert_eq!(out.status.code(), Some(7));
    assert_eq!(text(&out.stdout), "out\n");
    let errors = text(&out.stderr);
    assert!(
        errors.contains("err\n") && errors.contains("exit code 7"),
        "{errors}"
    );

    // More than any buffer on the way holds, in both directions.
    let input: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let out = k.output_with(&["exec", "-i", "box", "--", "cat"], &input);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(
        out.stdout == input,
        "{} bytes of {}",
        out.stdout.len(),
        input.len()
    );

    for (line, words) in [
        (
            "exec box -- no-such-program",
            "executable file not found in $PATH",
        ),
        ("exec box -c other -- ls", "other"),
        ("exec nobody -- ls", "pods \"nobody\" not found"),
    ] {
        let said = k.fail(line);
        assert!(said.contains(words), "{line}: {said}");
    }

    // Whoever leaves takes the command along.
    let command = ["sleep", "36022"];
    let stderr = PathBuf::from(cluster.file("left", ""));
    let mut left = Program::spawn(
        &mut k.command(&["exec", "box", "--", command[0], command[1]]),
        &stderr,
    );
    until("the command", || match processes(&command).len() {
        1 => Ok(()),
        n => Err(format!("{n} processes; {}", left.errors())),
    });
    left.kill();
    until("the command's end", || match processes(&command).len() {
        0 => Ok(()),
        n => Err(format!("{n} processes")),
    });
}

#[test]
fn a_terminal_is_a_terminal() {
    let kubectl = need!("kubectl");
    let script = PathBuf::from("/usr/bin/script");
    if !script.exists() {
        eprintln!("cannot run: script (util-linux) is not there");
        return;
    }
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    run_pod(&k, "box", "sleep 36023");
    let kubeconfig = cluster.data_dir().join("kubeconfig");
    // The size comes a moment after the command has started.
    let inside = "test -t 0 && test -t 1 && tty; \
                  until [ \"$(stty size)\" = \"33 99\" ]; do sleep 0.05; done; echo sized; exit 5";
    // script gives kubectl a terminal to pass on.
    let line = format!(
        "stty rows 33 cols 99; {} exec -it box -- sh -c '{inside}'",
        kubectl.display()
    );
    let out = std::process::Command::new(script)
        .args(["-qec", &line, "/dev/null"])
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", cluster.data_dir())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = text(&out.stdout);
    assert!(said.contains("/dev/pts/"), "{said}");
    assert!(said.contains("sized"), "{said}");
    assert_eq!(out.status.code(), Some(5), "{said}");
}

#[test]
fn files_are_copied_both_ways() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    run_pod(&k, "box", "sleep 36024");
    let words = "some words\n".repeat(50_000);
    let here = cluster.file("here", &words);
    let there = format!("{here}-there");
    let back = format!("{here}-back");
    k.run(&format!("cp {here} box:{there}"));
    assert_eq!(fs::read_to_string(&there).unwrap(), words);
    k.run(&format!("cp box:{there} {back}"));
    assert_eq!(fs::read_to_string(&back).unwrap(), words);
}

#[test]
fn attaching_is_hearing_and_typing() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let manifest = cluster.file(
        "typed.yaml",
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "typed"}, "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "host", "stdin": true, "stdinOnce": true,
                "command": ["sh", "-c", "while read line; do echo got $line; echo no $line >&2; done; echo over"]}]}}"#,
    );
    k.run(&format!("create -f {manifest}"));
    phase(&k, "typed", "Running");
    let out = k.output_with(&["attach", "-i", "typed"], b"one\ntwo\n");
    assert_eq!(ok(&out), "got one\ngot two\nover\n");
    let errors = text(&out.stderr);
    assert!(errors.contains("no one\nno two\n"), "{errors}");
    // With the first who typed the input ended, and the container with it.
    phase(&k, "typed", "Succeeded");
    assert_eq!(k.run("logs typed").lines().count(), 5);
}

/// Answers every connection with what it sends.
fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                drop(std::io::copy(&mut &stream, &mut writer));
                drop(writer.shutdown(Shutdown::Write));
            });
        }
    });
    port
}

#[test]
fn ports_are_forwarded() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    run_pod(&k, "box", "sleep 36025");
    let port = echo_server();
    let stderr = PathBuf::from(cluster.file("forward", ""));
    let forward = |port: u16| {
        let map = format!(":{port}");
        let mut command = k.command(&["port-forward", "--address=127.0.0.1", "pod/box", &map]);
        let mut program = Program::spawn(&mut command, &stderr);
        let line = program.line("Forwarding from 127.0.0.1:");
        let local: u16 = line.split(' ').next().unwrap().parse().unwrap();
        (program, local)
    };
    let (_forward, local) = forward(port);
    let talks: Vec<_> = (0..4_u8)
        .map(|n| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", local)).unwrap();
                let sent = vec![n; 700_000];
                let (mut writer, copy) = (stream.try_clone().unwrap(), sent.clone());
                let writing = thread::spawn(move || {
                    writer.write_all(&copy).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).unwrap();
                writing.join().unwrap();
                assert!(heard == sent, "{} bytes", heard.len());
            })
        })
        .collect();
    for talk in talks {
        talk.join().unwrap();
    }

    // A port where nobody listens.
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = unused.local_addr().unwrap().port();
    drop(unused);
    let (forward, local) = forward(closed);
    let mut stream = TcpStream::connect(("127.0.0.1", local)).unwrap();
    let mut nothing = Vec::new();
    // Closed, or reset: nothing comes in any case.
    drop(stream.read_to_end(&mut nothing));
    assert!(nothing.is_empty());
    forward.logged(&format!("error forwarding port {closed} to pod box"));
}

#[test]
fn logs_have_every_option() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let manifest = cluster.file(
        "logs.json",
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talk"}, "spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "i", "image": "host", "command": ["echo", "first"]}],
            "containers": [
                {"name": "a", "image": "host", "command": ["sh", "-c", "echo one; echo two >&2; sleep 1; echo three"]},
                {"name": "b", "image": "host", "command": ["echo", "other"]}]}}"#,
    );
    k.run(&format!("create -f {manifest}"));
    let followed = until("the container", || {
        let out = k.output("logs -f talk -c a");
        if out.status.success() {
            Ok(out)
        } else {
            Err(text(&out.stderr))
        }
    });
    let followed = ok(&followed);
    let mut lines: Vec<&str> = followed.lines().collect();
    assert_eq!(lines.pop(), Some("three"));
    lines.sort_unstable();
    assert_eq!(lines, ["one", "two"]);
    phase(&k, "talk", "Succeeded");

    assert_eq!(k.run("logs talk -c i"), "first\n");
    assert_eq!(k.run("logs talk -c a --tail=1"), "three\n");
    assert_eq!(k.run("logs talk -c a --limit-bytes=3").len(), 3);
    assert_eq!(k.run("logs talk -c a --since=1h").lines().count(), 3);
    assert_eq!(
        k.run("logs talk -c a --since-time=2099-01-01T00:00:00Z"),
        ""
    );
    let stamped = k.run("logs talk -c b --timestamps");
    assert!(
        stamped.contains("T") && stamped.ends_with("Z other\n"),
        "{stamped}"
    );
    let log = "/api/v1/namespaces/default/pods/talk/log?container=a";
    assert_eq!(k.run(&format!("get --raw {log}&stream=Stderr")), "two\n");
    assert_eq!(
        k.run(&format!("get --raw {log}&stream=Stdout")),
        "one\nthree\n"
    );
    let insecure = "logs talk -c b --insecure-skip-tls-verify-backend";
    assert_eq!(k.run(insecure), "other\n");
    for (query, words) in [
        ("&stream=Stdout&tailLines=1", "mutually exclusive"),
        ("&tailLines=-1", "must be greater than or equal to 0"),
        ("&limitBytes=0", "must be greater than 0"),
    ] {
        let said = k.fail(&format!("get --raw {log}{query}"));
        assert!(said.contains(words), "{query}: {said}");
    }
    let said = k.fail("logs talk -c a --previous");
    assert!(
        said.contains("previous terminated container \"a\" in pod \"talk\" not found"),
        "{said}"
    );
    let said = k.fail("get --raw /api/v1/namespaces/default/pods/talk/log");
    assert!(said.contains("choose one of: [i a b]"), "{said}");
}
