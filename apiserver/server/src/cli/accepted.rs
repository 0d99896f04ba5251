//! Flags of kube-apiserver that change nothing here. Whoever starts one, envtest above
//! all, passes them, and what they ask for is so, or is about something not there yet.

/// The flags; what each is given is not looked at, but for values that ask for what
/// would be missed.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Taken for kube-apiserver's sake, without effect")]
pub struct Accepted {
    /// Privileged containers are neither refused nor privileged.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub allow_privileged: bool,
    /// Everybody may do what the bootstrap roles allow; roles are not served yet.
    #[arg(long, value_delimiter = ',', value_parser = ["Node", "RBAC"])]
    pub authorization_mode: Vec<String>,
    /// There are no admission plugins yet.
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// There are no admission plugins yet.
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// All that is served is on, and nothing else can be.
    #[arg(long, value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// All that is served is on, and nothing else can be.
    #[arg(long, value_delimiter = ',')]
    pub runtime_config: Vec<String>,
    /// Objects are kept as JSON.
    #[arg(long, value_parser = ["application/json", "application/vnd.kubernetes.protobuf"])]
    pub storage_media_type: Option<String>,
    /// What is logged, `--log` and `KEELSON_LOG` say.
    #[arg(long, short = 'v')]
    pub v: Option<u8>,
}
