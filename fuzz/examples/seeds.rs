//! Writes inputs for libFuzzer to begin with, under `corpus/`: the objects of the
//! registry's tests as bodies, which the targets then damage byte by byte, and bytes of
//! many lengths, which are stories for all the others.

use std::path::Path;

/// How many stories each target begins with.
const STORIES: u64 = 300;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, name, bytes) in keelson_fuzz::bodies() {
        write(&root, target, &name, &bytes)?;
    }
    for (target, _) in keelson_fuzz::TARGETS {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for story in 0..STORIES {
            let bytes: Vec<u8> = (0..story * 4)
                .map(|_| {
                    state ^= state >> 12;
                    state ^= state << 25;
                    state ^= state >> 27;
                    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
                })
                .collect();
            write(&root, target, &format!("story-{story}"), &bytes)?;
        }
    }
    Ok(())
}

fn write(root: &Path, target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = root.join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), bytes)
}
