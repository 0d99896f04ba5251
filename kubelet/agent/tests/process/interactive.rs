//! Commands with somebody at the other end, and containers with somebody
//! attached.

use agent::runtime::{Runtime as _, RuntimeError};
use agent::session::{Input, Session, Wanted};
use agent::terminal::Size;
use kubelet_core::cri_log::Stream;
use tokio::signal::unix::{SignalKind, signal};

use super::{PATIENCE, World, request};

const ALL: Wanted = Wanted {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};
const TTY: Wanted = Wanted {
    tty: true,
    stderr: false,
    ..ALL
};

impl World {
    async fn run(&self, id: &str, command: &[&str], wanted: Wanted) -> Session {
        let command = command.iter().map(|w| (*w).to_owned()).collect();
        self.runtime.run(id, command, wanted).await.unwrap()
    }

    /// Starts a container that reads what is typed.
    async fn typed(&mut self, script: &str, tty: bool) -> String {
        let mut request = request(&self.runtime, &["sh", "-c", script], self.attempts);
        self.attempts += 1;
        (request.stdin, request.stdin_once, request.tty) = (true, true, tty);
        self.runtime.start(request).await.unwrap().id
    }
}

/// Hears a session to its end: output, errors, how it ended.
async fn heard(mut session: Session) -> (String, String, Result<i32, String>) {
    let hear = async {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some((stream, bytes)) = session.output.recv().await {
            match stream {
                Stream::Stdout => out.extend_from_slice(&bytes),
                Stream::Stderr => err.extend_from_slice(&bytes),
            }
        }
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(out), text(err), (&mut session.end).await.unwrap())
    };
    tokio::time::timeout(PATIENCE, hear).await.expect("it ends")
}

async fn send(session: &Session, input: Input) {
    session.input.send(input).await.unwrap();
}

fn bytes(text: &'static str) -> Input {
    Input::Bytes(bytes::Bytes::from_static(text.as_bytes()))
}

/// Hears output until it contains the words.
async fn until_heard(session: &mut Session, words: &str) -> String {
    let hear = async {
        let mut all = String::new();
        while !all.contains(words) {
            let (_, bytes) = session.output.recv().await.expect("more to hear");
            all += &String::from_utf8_lossy(&bytes);
        }
        all
    };
    tokio::time::timeout(PATIENCE, hear)
        .await
        .expect("it is said")
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let look = async {
        while !holds() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let held = tokio::time::timeout(PATIENCE, look).await;
    held.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn a_command_talks_while_it_runs() {
    let mut world = World::new().await;
    let id = world.shell("sleep 3600").await.id;
    let script = "echo $GREETING >&2; cat; exit 3";
    let mut session = world.run(&id, &["sh", "-c", script], ALL).await;
    send(&session, bytes("one")).await;
    assert!(until_heard(&mut session, "one").await.contains("one"));
    send(&session, bytes("two")).await;
    send(&session, Input::End).await;
    let (out, _, end) = heard(session).await;
    assert_eq!((out.as_str(), end), ("two", Ok(3)));
    // Without input there is nothing to read, and nothing to wait for.
    let mute = Wanted {
        stdin: false,
        ..ALL
    };
    let (out, err, end) = heard(world.run(&id, &["sh", "-c", script], mute).await).await;
    assert_eq!((out.as_str(), err.as_str(), end), ("", "hello\n", Ok(3)));
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let mut world = World::new().await;
    // One process: a shell may make a second one when it likes.
    let id = world.start(&["sleep", "3600"]).await.id;
    let before = world.processes().len();
    // The sleep holds the output open, and is not waited for.
    let session = world
        .run(&id, &["sh", "-c", "sleep 3601 & echo done"], ALL)
        .await;
    assert_eq!(heard(session).await.0, "done\n");
    until("the rest is gone", || world.processes().len() == before).await;
    for wanted in [ALL, TTY] {
        let session = world.run(&id, &["sleep", "3602"], wanted).await;
        until("it runs", || world.processes().len() > before).await;
        drop(session);
        until("it goes with its user", || {
            world.processes().len() == before
        })
        .await;
    }
    // And with its container.
    let session = world.run(&id, &["sleep", "3603"], ALL).await;
    let stopped = world.runtime.stop(&id, std::time::Duration::ZERO).await;
    stopped.unwrap();
    assert_eq!(heard(session).await.2, Ok(137));
    let again = world.runtime.run(&id, vec!["true".into()], ALL).await;
    assert!(matches!(again, Err(RuntimeError::NotRunning(_))));
}

#[tokio::test]
async fn what_cannot_run_says_why() {
    let mut world = World::new().await;
    let id = world.shell("sleep 3600").await.id;
    for wanted in [ALL, TTY] {
        for (program, words) in [
            ("no-such-program", "executable file not found in $PATH"),
            ("/no/such/program", "no such file or directory"),
            ("/etc/passwd", "permission denied"),
        ] {
            let ran = world.runtime.run(&id, vec![program.into()], wanted).await;
            let error = ran.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let ran = world.runtime.run(&id, Vec::new(), wanted).await;
        assert!(ran.unwrap_err().to_string().contains("empty"));
    }
}

#[tokio::test]
async fn a_terminal_is_the_commands_own() {
    // As the program hears of interrupts: what a process ignores its commands ignore too,
    // and a shell has what runs in its background ignore them.
    let _heard = signal(SignalKind::interrupt()).unwrap();
    let mut world = World::new().await;
    let id = world.shell("sleep 3600").await.id;
    let script = "test -t 0 && test -t 2 && echo $GREETING > /dev/tty; read x; stty size; exit 4";
    let mut session = world.run(&id, &["sh", "-c", script], TTY).await;
    until_heard(&mut session, "hello\r\n").await;
    let size = Size {
        columns: 99,
        rows: 33,
    };
    send(&session, Input::Resize(size)).await;
    send(&session, bytes("go\n")).await;
    let (out, _, end) = heard(session).await;
    // The terminal shows what is typed.
    assert_eq!((out.as_str(), end), ("go\r\n33 99\r\n", Ok(4)));
    // Its user can interrupt, and end the input. No shell takes part: one that is just
    // about to fork keeps an interrupt to itself until its new child has ended.
    let mut session = world.run(&id, &["cat"], TTY).await;
    send(&session, bytes("on\n")).await;
    until_heard(&mut session, "on\r\non\r\n").await;
    send(&session, bytes("\x03")).await;
    assert_eq!(heard(session).await.2, Ok(130));
    let session = world.run(&id, &["cat"], TTY).await;
    send(&session, Input::End).await;
    assert_eq!(heard(session).await.2, Ok(0));
}

#[tokio::test]
async fn who_attaches_hears_and_types() {
    let mut world = World::new().await;
    let script = "while read x; do echo got $x; echo no $x >&2; done; echo over";
    let id = world.typed(script, false).await;
    let mut listener = world
        .runtime
        .attach(
            &id,
            Wanted {
                stdin: false,
                ..ALL
            },
        )
        .await
        .unwrap();
    let mut typist = world.runtime.attach(&id, ALL).await.unwrap();
    send(&typist, bytes("one\n")).await;
    until_heard(&mut typist, "got one\n").await;
    until_heard(&mut listener, "got one\n").await;
    // A listener's leaving means nothing, the typist's end is the input's.
    drop(listener);
    send(&typist, bytes("two\n")).await;
    until_heard(&mut typist, "got two\n").await;
    send(&typist, Input::End).await;
    let (out, _, end) = heard(typist).await;
    assert!(out.ends_with("over\n"), "{out}");
    assert_eq!(end, Ok(0));
    assert_eq!(world.exit(&id).await.exit_code, 0);
    assert!(
        world.log(&id).contains("stderr F no two"),
        "{}",
        world.log(&id)
    );
}

#[tokio::test]
async fn a_typist_who_vanishes_ends_the_input_too() {
    let mut world = World::new().await;
    let id = world.typed("cat; exit 6", false).await;
    let mut typist = world.runtime.attach(&id, ALL).await.unwrap();
    send(&typist, bytes("one\n")).await;
    until_heard(&mut typist, "one\n").await;
    drop(typist);
    assert_eq!(world.exit(&id).await.exit_code, 6);
}

#[tokio::test]
async fn a_container_may_run_on_a_terminal() {
    let mut world = World::new().await;
    let script = "test -t 0 && test -t 1 && echo ready; read x; stty size; exit 5";
    let id = world.typed(script, true).await;
    let mut session = world.runtime.attach(&id, TTY).await.unwrap();
    let size = Size {
        columns: 77,
        rows: 11,
    };
    send(&session, Input::Resize(size)).await;
    send(&session, bytes("go\n")).await;
    until_heard(&mut session, "11 77\r\n").await;
    assert_eq!(world.exit(&id).await.exit_code, 5);
    assert!(
        world.log(&id).contains("stdout F ready"),
        "{}",
        world.log(&id)
    );
    let failed = {
        let mut request = request(&world.runtime, &["/no/such/program"], world.attempts);
        request.tty = true;
        world.runtime.start(request).await.unwrap()
    };
    let exit = failed.exit().cloned().unwrap();
    assert_eq!(exit.reason, "StartError");
    assert!(
        exit.message.contains("/no/such/program"),
        "{}",
        exit.message
    );
}
