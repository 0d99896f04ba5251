//! `keelson snapshot`: backups in etcd's form, with the flags and words of etcdctl
//! and etcdutl. What is done is in `kvserver::snapshot`; here are the flags, the
//! tables and the progress bar.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kvserver::snapshot::{self, Restore, Save, SnapshotStatus};

use crate::say;

/// How long a step may take before it shows how far it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Saves, describes and restores backups of the store, ours and etcd's.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Store a backup of a running member in a file.
    Save(SaveArgs),
    /// Make a data directory from a backup.
    Restore(RestoreArgs),
    /// Describe a backup.
    Status(StatusArgs),
}

#[derive(Debug, Parser)]
struct SaveArgs {
    /// The file to make.
    file: PathBuf,
    /// The member to ask; exactly one.
    #[arg(
        long,
        env = "ETCDCTL_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:2379"
    )]
    endpoints: Vec<String>,
    /// Certificates the member's must be signed by, PEM.
    #[arg(long, env = "ETCDCTL_CACERT")]
    cacert: Option<PathBuf>,
    /// The client's certificate, PEM.
    #[arg(long, env = "ETCDCTL_CERT", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, env = "ETCDCTL_KEY", requires = "cert")]
    key: Option<PathBuf>,
    /// User and password, as `name:password`.
    #[arg(long, env = "ETCDCTL_USER", hide_env_values = true)]
    user: Option<String>,
    /// The password, if it is not in `--user`.
    #[arg(
        long,
        env = "ETCDCTL_PASSWORD",
        hide_env_values = true,
        requires = "user"
    )]
    password: Option<String>,
}

#[derive(Debug, Parser)]
struct RestoreArgs {
    /// The backup, ours or etcd's, or a database out of a data directory of etcd.
    file: PathBuf,
    /// Directory to make; `<name>.etcd` if not given.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Name of this member.
    #[arg(long, default_value = "default")]
    name: String,
    /// Members of the new cluster, as `name=url,name=url`.
    #[arg(long, default_value = "default=http://localhost:2380")]
    initial_cluster: String,
    /// Token of the new cluster.
    #[arg(long, default_value = "etcd-cluster")]
    initial_cluster_token: String,
    /// URLs to tell peers of, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "http://localhost:2380")]
    initial_advertise_peer_urls: Vec<String>,
    /// Take a file without its hash (one copied from a data directory has none).
    #[arg(long)]
    skip_hash_check: bool,
    /// Revisions to add to the last one, so that no client sees it go back.
    #[arg(long, default_value_t = 0)]
    bump_revision: u64,
    /// Mark everything up to the last revision as compacted; goes with `--bump-revision`.
    #[arg(long)]
    mark_compacted: bool,
}

#[derive(Debug, Parser)]
struct StatusArgs {
    /// The backup.
    file: PathBuf,
    /// How to write it.
    #[arg(long, short, value_enum, default_value = "simple")]
    write_out: Form,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    Simple,
    Table,
    Json,
    Fields,
}

/// Does what is asked.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Save(args) => save(args),
        Command::Restore(args) => restore(args),
        Command::Status(args) => status(&args),
    }
}

fn save(args: SaveArgs) -> anyhow::Result<()> {
    let [endpoint] = args.endpoints.as_slice() else {
        bail!(
            "snapshot must be requested to one selected node, not multiple [{}]",
            args.endpoints.join(" ")
        );
    };
    let user = args
        .user
        .map(|user| match (args.password, user.split_once(':')) {
            (Some(password), _) => Ok((user, password)),
            (None, Some((name, password))) => Ok((name.to_owned(), password.to_owned())),
            (None, None) => Err(anyhow::anyhow!("--user needs name:password, or --password")),
        });
    let order = Save {
        endpoint: endpoint.clone(),
        file: args.file.clone(),
        cacert: args.cacert,
        cert: args.cert.zip(args.key),
        user: user.transpose()?,
    };
    let mut bar = Bar::new("saving");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let saved = runtime.block_on(snapshot::save(&order, &mut |done, of| bar.show(done, of)));
    bar.end();
    saved?;
    say::line(&format!("Snapshot saved at {}", args.file.display()));
    Ok(())
}

fn restore(args: RestoreArgs) -> anyhow::Result<()> {
    let data_dir = args.data_dir;
    let order = Restore {
        file: args.file,
        data_dir: data_dir.unwrap_or_else(|| format!("{}.etcd", args.name).into()),
        name: args.name,
        initial_cluster: args.initial_cluster,
        initial_cluster_token: args.initial_cluster_token,
        initial_advertise_peer_urls: args.initial_advertise_peer_urls,
        skip_hash_check: args.skip_hash_check,
        bump_revision: args.bump_revision,
        mark_compacted: args.mark_compacted,
    };
    let mut bar = Bar::new("restoring");
    let restored = snapshot::restore(&order, &mut |done, of| bar.show(done, of));
    bar.end();
    let restored = restored?;
    say::line(&format!(
        "Restored revision {} ({} changes, {} leases, {} users) into {}",
        restored.revision,
        restored.changes,
        restored.leases,
        restored.users,
        order.data_dir.display()
    ));
    Ok(())
}

fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let mut bar = Bar::new("reading");
    let found = snapshot::status(&args.file, &mut |done, of| bar.show(done, of));
    bar.end();
    let found = found?;
    match args.write_out {
        Form::Simple => say::line(&cells(&found).join(", ")),
        Form::Table => table(&found).iter().for_each(|line| say::line(line)),
        Form::Json => say::line(&format!(
            r#"{{"hash":{},"revision":{},"totalKey":{},"totalSize":{},"version":{:?}}}"#,
            found.hash, found.revision, found.total_key, found.total_size, found.version
        )),
        Form::Fields => {
            say::line(&format!("\"Hash\" : {}", found.hash));
            say::line(&format!("\"Revision\" : {}", found.revision));
            say::line(&format!("\"Keys\" : {}", found.total_key));
            say::line(&format!("\"Size\" : {}", found.total_size));
            say::line(&format!("\"Version\" : {}", found.version));
        }
    }
    Ok(())
}

fn cells(found: &SnapshotStatus) -> [String; 5] {
    [
        format!("{:x}", found.hash),
        found.revision.to_string(),
        found.total_key.to_string(),
        size(found.total_size),
        found.version.clone(),
    ]
}

/// Draws the table as etcdutl does.
fn table(found: &SnapshotStatus) -> Vec<String> {
    let heads = ["HASH", "REVISION", "TOTAL KEYS", "TOTAL SIZE", "VERSION"];
    let cells = cells(found);
    let width = |n: usize| heads[n].len().max(cells[n].len());
    let rule: String = (0..heads.len())
        .map(|n| format!("+{}", "-".repeat(width(n) + 2)))
        .collect();
    let rule = format!("{rule}+");
    let centred = |n: usize| format!("| {:^1$} ", heads[n], width(n));
    let right = |n: usize| format!("| {:>1$} ", cells[n], width(n));
    let head: String = (0..heads.len()).map(centred).collect();
    let row: String = (0..heads.len()).map(right).collect();
    vec![
        rule.clone(),
        format!("{head}|"),
        rule.clone(),
        format!("{row}|"),
        rule,
    ]
}

/// Writes a number of bytes as etcdutl does: powers of 1000, one decimal below 10.
fn size(bytes: u64) -> String {
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    let value = (value * 10.0 + 0.5).floor() / 10.0;
    match value < 10.0 {
        true => format!("{value:.1} {unit}"),
        false => format!("{value:.0} {unit}"),
    }
}

/// Shows on a terminal how far a long step is.
struct Bar {
    what: &'static str,
    start: Instant,
    shown: Option<ProgressBar>,
}

impl Bar {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            start: Instant::now(),
            shown: None,
        }
    }

    fn show(&mut self, done: u64, of: u64) {
        if self.start.elapsed() < PATIENCE {
            return;
        }
        let bar = self.shown.get_or_insert_with(|| {
            // On anything but a terminal it draws nothing.
            let bar = ProgressBar::new(of);
            let form = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            bar.set_message(self.what);
            bar
        });
        bar.set_length(of);
        bar.set_position(done);
    }

    fn end(self) {
        if let Some(bar) = self.shown {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_etcdutl_does() {
        for (bytes, text) in [
            (0, "0 B"),
            (9, "9 B"),
            (20_480, "20 kB"),
            (1_500, "1.5 kB"),
            (16_859_136, "17 MB"),
            (2_147_483_648, "2.1 GB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn the_table_is_drawn_as_etcdutl_does() {
        let found = SnapshotStatus {
            hash: 0x6dfb_b68d,
            revision: 1331,
            total_key: 113_955,
            total_size: 16_859_136,
            version: String::new(),
        };
        assert_eq!(
            table(&found).join("\n"),
            "\
+----------+----------+------------+------------+---------+
|   HASH   | REVISION | TOTAL KEYS | TOTAL SIZE | VERSION |
+----------+----------+------------+------------+---------+
| 6dfbb68d |     1331 |     113955 |      17 MB |         |
+----------+----------+------------+------------+---------+"
        );
    }
}
