//! The table of messages, as `build/` wrote it, joined with the JSON names of
//! the schema: everything that either direction needs to know of a message.
//!
//! The text's lines, tab-separated: `M name` begins a message, `F number r|""
//! type name` is a field of the last one. A type is `s` text, `y` bytes, `b`
//! boolean, `i` integer, `d` double, `@name` a message, `{`type a map from text.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::LazyLock;

use registry::table::{DefId, table as schema};

use super::special::Special;

/// Numbers a message in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MessageId(usize);

/// How a field is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A boolean.
    Bool,
    /// An integer of either size.
    Int,
    /// A floating-point number.
    Double,
    /// A message.
    Message(MessageId),
    /// A message whose JSON form is not an object of its fields.
    Special(Special),
    /// A map from text.
    Map(Box<Wire>),
}

/// One field of a message, under the JSON name.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The JSON name.
    pub(super) name: &'static str,
    /// The number.
    pub(super) number: u32,
    /// The numbers of the messages around it that JSON does not know: Go's
    /// embedded structs, outermost first.
    pub(super) path: Vec<u32>,
    /// Whether it is a list.
    pub(super) repeated: bool,
    /// How it is written.
    pub(super) wire: Wire,
    /// Whether zero is said in JSON too: a pointer in Go, or a field that Go's JSON
    /// never leaves out.
    pub(super) keeps_zero: bool,
}

/// What a number on the wire means.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    /// The message's field at this place.
    Field(usize),
    /// An embedded struct, whose numbers mean this.
    Embedded(Numbers),
}

/// The meanings of a message's numbers, in their order.
pub(super) type Numbers = Vec<(u32, Meaning)>;

/// One message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The fields, ordered by name.
    fields: Vec<Field>,
    /// Where the fields are, by [`slot`]: a place one up, or zero. A field whose slot is
    /// taken has the next that is free.
    slots: Vec<u16>,
    /// What the numbers mean.
    pub(super) numbers: Numbers,
}

impl Message {
    fn new(fields: Vec<Field>, numbers: Numbers) -> Self {
        // At most half full, so that some slot is free.
        let mut slots = vec![0; (2 * fields.len() + 1).next_power_of_two()];
        for (place, field) in (1..).zip(&fields) {
            let mut at = slot(field.name, slots.len());
            while slots[at] != 0 {
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = place;
        }
        Self {
            fields,
            slots,
            numbers,
        }
    }

    /// Returns a field by its JSON name.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        let mut at = slot(name, self.slots.len());
        loop {
            let place = usize::from(self.slots[at]).checked_sub(1)?;
            let field = &self.fields[place];
            if field.name == name {
                return Some(field);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Returns a field by its place.
    pub(super) fn at(&self, place: usize) -> &Field {
        &self.fields[place]
    }

    /// Returns all fields.
    #[cfg(test)]
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }
}

/// Returns the first slot to look for a name in. There are a power of two.
fn slot(name: &str, slots: usize) -> usize {
    // FNV-1a: names are short.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // Truncated on purpose: any bits will do.
    (hash ^ (hash >> 32)) as usize & (slots - 1)
}

/// All messages.
pub(super) struct Messages {
    all: Vec<Message>,
    by_name: BTreeMap<&'static str, MessageId>,
}

impl Messages {
    /// Returns a message by its number.
    pub(super) fn get(&self, id: MessageId) -> &Message {
        &self.all[id.0]
    }

    /// Finds a message by its name, all lower case.
    pub(super) fn id(&self, name: &str) -> Option<MessageId> {
        self.by_name.get(name).copied()
    }

    /// Returns all names.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = (&'static str, MessageId)> {
        self.by_name.iter().map(|(name, id)| (*name, *id))
    }
}

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    let packed = include_bytes!(concat!(env!("OUT_DIR"), "/protobuf.bin"));
    let mut text = String::new();
    flate2::read::DeflateDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .expect("the build wrote this table");
    Join::new(text.leak()).run()
});

/// Returns the table of this build, made on first use.
pub(super) fn messages() -> &'static Messages {
    &MESSAGES
}

/// The groups whose types have numbers, and where these lie. The list is
/// explicit: a custom resource of group `apps.example.com` is no Deployment.
const GROUPS: &[(&str, &str)] = &[
    ("", "api.core"),
    ("admissionregistration.k8s.io", "api.admissionregistration"),
    (
        "apiextensions.k8s.io",
        "apiextensions_apiserver.pkg.apis.apiextensions",
    ),
    (
        "apiregistration.k8s.io",
        "kube_aggregator.pkg.apis.apiregistration",
    ),
    ("apidiscovery.k8s.io", "api.apidiscovery"),
    ("apps", "api.apps"),
    ("authentication.k8s.io", "api.authentication"),
    ("authorization.k8s.io", "api.authorization"),
    ("autoscaling", "api.autoscaling"),
    ("batch", "api.batch"),
    ("certificates.k8s.io", "api.certificates"),
    ("coordination.k8s.io", "api.coordination"),
    ("discovery.k8s.io", "api.discovery"),
    ("events.k8s.io", "api.events"),
    ("flowcontrol.apiserver.k8s.io", "api.flowcontrol"),
    ("meta.k8s.io", META),
    ("networking.k8s.io", "api.networking"),
    ("node.k8s.io", "api.node"),
    ("policy", "api.policy"),
    ("rbac.authorization.k8s.io", "api.rbac"),
    ("resource.k8s.io", "api.resource"),
    ("scheduling.k8s.io", "api.scheduling"),
    ("storage.k8s.io", "api.storage"),
];

const META: &str = "apimachinery.pkg.apis.meta";

/// Finds the message of a type.
pub(super) fn find(api_version: &str, kind: &str) -> Option<MessageId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = GROUPS.iter().find(|(g, _)| *g == group).map(|(_, p)| *p);
    let kind = kind.to_lowercase();
    let own = match package {
        // Both versions have the same numbers.
        Some(META) => None,
        package => package.and_then(|p| messages().id(&format!("{p}.{version}.{kind}"))),
    };
    // Options and the like travel under the version of whatever they are for.
    own.or_else(|| match package {
        None if !kind.ends_with("options") => None,
        _ => messages().id(&format!("{META}.v1.{kind}")),
    })
}

/// A field as the text has it: number, whether it is a list, type, name.
type Raw = (u32, bool, &'static str, &'static str);

/// The names, as the text spells them, of the messages that are Go's embedded
/// structs. A message field that JSON does not know and that is not among these
/// is one that the schema has dropped.
const EMBEDDED: &[&str] = &[
    "device_configuration",
    "ephemeral_container_common",
    "handler",
    "ingress_rule_value",
    "local_object_reference",
    "persistent_volume_source",
    "rule",
    "rule_with_operations",
    "volume_source",
];

struct Join {
    raw: BTreeMap<&'static str, Vec<Raw>>,
    ids: BTreeMap<&'static str, MessageId>,
    definitions: BTreeMap<String, DefId>,
    pointers: BTreeMap<String, BTreeSet<&'static str>>,
}

impl Join {
    fn new(text: &'static str) -> Self {
        let mut raw: BTreeMap<&'static str, Vec<Raw>> = BTreeMap::new();
        let mut current = "";
        for line in text.lines() {
            let columns: Vec<&'static str> = line.split('\t').collect();
            match columns.as_slice() {
                ["M", name] => {
                    // The same name again adds to it.
                    current = name;
                    raw.entry(name).or_default();
                }
                ["F", number, repeated, ty, name] => {
                    if let (Ok(number), Some(fields)) = (number.parse(), raw.get_mut(current)) {
                        fields.push((number, *repeated == "r", ty, name));
                    }
                }
                _ => {}
            }
        }
        let ids = raw.keys().copied().zip((0..).map(MessageId)).collect();
        let definitions = schema()
            .iter()
            .filter_map(|d| {
                Some((
                    normal(d.name.strip_prefix("io.k8s.")?),
                    schema().id(d.name)?,
                ))
            })
            .collect();
        let pointers = include_str!("pointers.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(' '))
            .map(|(name, fields)| (normal(name), fields.split(' ').collect()))
            .collect();
        Self {
            raw,
            ids,
            definitions,
            pointers,
        }
    }

    fn run(self) -> Messages {
        let all = self.raw.keys().map(|name| self.message(name)).collect();
        Messages {
            all,
            by_name: self.ids,
        }
    }

    fn message(&self, name: &str) -> Message {
        let mut fields = Vec::new();
        let def = self.definitions.get(name).copied();
        let mut numbers = self.numbers(name, def, &[], &mut fields);
        let mut order: Vec<usize> = (0..fields.len()).collect();
        order.sort_by_key(|i| fields[*i].name);
        let mut places = vec![0; fields.len()];
        for (new, old) in order.iter().enumerate() {
            places[*old] = new;
        }
        fields.sort_by_key(|f| f.name);
        renumber(&mut numbers, &places);
        Message::new(fields, numbers)
    }

    /// Collects the fields of a message, those of embedded ones among them.
    fn numbers(
        &self,
        message: &str,
        def: Option<DefId>,
        path: &[u32],
        fields: &mut Vec<Field>,
    ) -> Numbers {
        let mut numbers = Numbers::new();
        let raw = self.raw.get(message).into_iter().flatten().copied();
        for (number, repeated, code, spelled) in raw {
            let inner = code.strip_prefix('@');
            let embedded = inner.filter(|_| EMBEDDED.contains(&spelled));
            let name = match (def, embedded) {
                (Some(def), _) => json_field(def, spelled),
                (None, None) => Some(camel(spelled)),
                (None, Some(_)) => None,
            };
            if let Some(name) = name {
                let pointers = self.pointers.get(message);
                numbers.push((number, Meaning::Field(fields.len())));
                fields.push(Field {
                    name,
                    number,
                    path: path.to_vec(),
                    repeated,
                    wire: self.wire(code),
                    keeps_zero: pointers.is_some_and(|p| p.contains(name))
                        || def.is_some_and(|def| always_said(def, name)),
                });
            } else if let Some(inner) = embedded {
                let path = [path, &[number]].concat();
                let inner = self.numbers(inner, def, &path, fields);
                numbers.push((number, Meaning::Embedded(inner)));
            }
        }
        numbers.sort_by_key(|(number, _)| *number);
        numbers
    }

    fn wire(&self, code: &'static str) -> Wire {
        match code.split_at_checked(1) {
            Some(("@", name)) => match (Special::of(name, &self.ids), self.ids.get(name)) {
                (Some(special), _) => Wire::Special(special),
                (None, Some(id)) => Wire::Message(*id),
                // A message of a package that is not in the table.
                (None, None) => Wire::Bytes,
            },
            Some(("{", inner)) => Wire::Map(Box::new(self.wire(inner))),
            Some(("y", _)) => Wire::Bytes,
            Some(("b", _)) => Wire::Bool,
            Some(("i", _)) => Wire::Int,
            Some(("d", _)) => Wire::Double,
            _ => Wire::Text,
        }
    }
}

fn renumber(numbers: &mut Numbers, places: &[usize]) {
    for (_, meaning) in numbers {
        match meaning {
            Meaning::Field(at) => *at = places[*at],
            Meaning::Embedded(inner) => renumber(inner, places),
        }
    }
}

/// Finds the JSON field of a definition that is spelled like a wire field.
fn json_field(def: DefId, spelled: &str) -> Option<&'static str> {
    let wanted = squeeze(spelled);
    let fields = &schema().get(def).fields;
    fields
        .iter()
        .find(|f| squeeze(f.name) == wanted)
        .map(|f| f.name)
}

/// Tells whether JSON has a field even when it is zero: it is required, and so has no
/// `omitempty`.
fn always_said(def: DefId, name: &str) -> bool {
    let field = schema().get(def).field(name);
    field.is_some_and(|f| f.required && f.default.is_empty())
}

/// Makes Go, JSON and prost spellings of a field's name equal.
fn squeeze(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '$' | '-'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Makes the spellings of a type's name equal.
fn normal(name: &str) -> String {
    name.replace('-', "_").to_lowercase()
}

/// The JSON names, of types that the schema may not have, that are spelled in a
/// way of their own.
const SPELLED: &[(&str, &str)] = &[
    ("a_pi_group", "apiGroup"),
    (
        "current_cpu_utilization_percentage",
        "currentCPUUtilizationPercentage",
    ),
    (
        "insecure_skip_tls_verify_backend",
        "insecureSkipTLSVerifyBackend",
    ),
    ("node_id", "nodeID"),
    ("non_resource_ur_ls", "nonResourceURLs"),
    ("scale_io", "scaleIO"),
    ("share_id", "shareID"),
    (
        "target_cpu_utilization_percentage",
        "targetCPUUtilizationPercentage",
    ),
    ("u_id", "uid"),
    ("volume_id", "volumeID"),
];

/// Returns the JSON name of a field of a type that the schema does not have.
fn camel(name: &str) -> &'static str {
    if let Some((_, json)) = SPELLED.iter().find(|(n, _)| *n == name) {
        return json;
    }
    let mut out = String::new();
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out.leak()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_ones_own_is_not_a_built_in_one() {
        assert!(find("apps/v1", "Deployment").is_some());
        assert!(find("v1", "PodList").is_some());
        assert!(find("v1", "Status").is_some());
        assert!(find("apps/v1", "DeleteOptions").is_some());
        assert!(find("meta.k8s.io/v1beta1", "PartialObjectMetadata").is_some());
        assert!(find("apps.example.com/v1", "Deployment").is_none());
        assert!(find("apps/v9", "Deployment").is_none());
        assert!(find("meta.k8s.io/v1", "Table").is_none());
    }

    #[test]
    fn every_field_of_the_schema_has_a_number() {
        let mut lost = Vec::new();
        for (name, id) in messages().names() {
            let Some(def) = schema()
                .iter()
                .find(|d| normal(d.name.trim_start_matches("io.k8s.")) == name)
            else {
                continue;
            };
            let message = messages().get(id);
            if def.fields.is_empty() || message.fields.is_empty() {
                continue;
            }
            for field in &def.fields {
                let known = message.field(field.name).is_some();
                if !known && !matches!(field.name, "apiVersion" | "kind") {
                    lost.push(format!("{name}.{}", field.name));
                }
            }
        }
        assert!(
            lost.is_empty(),
            "fields without a number, to be added to build/newer.txt: {lost:?}"
        );
    }

    #[test]
    fn every_definition_of_a_group_has_a_message() {
        let mut lost = Vec::new();
        for definition in schema().iter().filter(|d| !d.fields.is_empty()) {
            let name = normal(definition.name.trim_start_matches("io.k8s."));
            let (package, _) = name.rsplit_once('.').unwrap();
            let (folder, _) = package.rsplit_once('.').unwrap();
            let spoken = GROUPS.iter().any(|(_, p)| *p == folder);
            if spoken && messages().id(&name).is_none() {
                lost.push(name);
            }
        }
        assert!(
            lost.is_empty(),
            "types without a message, to be added to build/newer.txt: {lost:?}"
        );
        for kind in registry::kinds::all() {
            let version = kind.gv().to_string();
            for name in [kind.kind, kind.list_kind] {
                assert!(find(&version, name).is_some(), "{version} {name}");
            }
        }
    }

    #[test]
    fn every_pointer_is_a_scalar_field() {
        let text = include_str!("pointers.txt");
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (name, fields) = line.split_once(' ').unwrap();
            let id = messages().id(&normal(name)).expect(name);
            for field in fields.split(' ') {
                // Those embedded elsewhere, and those of types that are not
                // served and so known by other names, are looked for loosely.
                let found = messages()
                    .get(id)
                    .fields
                    .iter()
                    .find(|f| squeeze(f.name) == squeeze(field));
                let found = found.unwrap_or_else(|| panic!("{name}.{field}"));
                assert!(
                    matches!(
                        found.wire,
                        Wire::Text | Wire::Bool | Wire::Int | Wire::Double
                    ),
                    "{name}.{field}"
                );
            }
        }
    }
}
