//! Whether a file holds together: every page in use exactly once, or free
//! exactly once (bbolt `Tx.Check`).

use crate::{
    error::{Problem, ReadError},
    format::{BUCKET_HEADER, COUNT_FOLLOWS, FREELIST, NO_FREELIST, PAGE_HEADER, le64},
    reader::{Db, Page},
    source::ReadAt,
};

type Result<T> = std::result::Result<T, ReadError>;

/// Bytes of the freelist read at a time.
const FREELIST_CHUNK: u64 = 64 << 10;

impl<R: ReadAt> Db<R> {
    /// Checks every page's head, table and elements, and that no page is shared,
    /// lost, or both used and free; then that every bucket can be read to its end, in
    /// order. Memory: a bit for each page.
    ///
    /// Without a written freelist free pages cannot be told from lost ones, and
    /// are not looked for.
    pub fn check(&self) -> Result<()> {
        let mut seen = Seen {
            // The file has that many pages, as `open` found.
            bits: vec![0; (self.meta.used as usize).div_ceil(64)],
        };
        for meta in 0..self.meta.used.min(2) {
            seen.mark(meta);
        }
        let listed = self.meta.freelist != NO_FREELIST;
        if listed {
            self.check_freelist(&mut seen)?;
        }
        let mut waiting = vec![self.meta.root];
        while let Some(id) = waiting.pop() {
            self.check_tree_page(id, &mut seen, &mut waiting)?;
        }
        let lost = (0..self.meta.used).find(|id| listed && !seen.has(*id));
        match lost {
            Some(id) => Err(self.place(id).fails(Problem::Lost)),
            None => self.check_order(),
        }
    }

    /// Reads everything as a reader does, who refuses keys out of order.
    fn check_order(&self) -> Result<()> {
        for name in self.buckets()? {
            let Some(mut entries) = self.bucket(&name)? else {
                continue;
            };
            while entries.next_entry()?.is_some() {}
        }
        Ok(())
    }

    fn use_run(&self, id: u64, bytes: u64, seen: &mut Seen) -> Result<()> {
        let pages = bytes / u64::from(self.meta.page_size);
        match (id..id + pages).find(|id| !seen.mark(*id)) {
            Some(twice) => Err(self.place(twice).fails(Problem::Twice)),
            None => Ok(()),
        }
    }

    fn check_tree_page(&self, id: u64, seen: &mut Seen, waiting: &mut Vec<u64>) -> Result<()> {
        let (_, bytes) = self.header(id)?;
        self.use_run(id, bytes, seen)?;
        let page = self.page(id, Vec::new())?;
        if page.branch {
            waiting.extend((0..page.count).map(|at| page.child(at)));
            return Ok(());
        }
        for at in 0..page.count {
            let (is_bucket, _, value) = page.leaf(at)?;
            if !is_bucket {
                continue;
            }
            if value.len() < BUCKET_HEADER {
                return Err(self.place(id).fails(Problem::Bucket(at)));
            }
            match le64(value, 0) {
                0 => {
                    let inner = Page::inline(self.place(id), at, &value[BUCKET_HEADER..])?;
                    for at in 0..inner.count {
                        inner.leaf(at)?;
                    }
                }
                root => waiting.push(root),
            }
        }
        Ok(())
    }

    fn check_freelist(&self, seen: &mut Seen) -> Result<()> {
        let id = self.meta.freelist;
        let (header, bytes) = self.header(id)?;
        let place = self.place(id);
        if header.flags != FREELIST {
            return Err(place.fails(Problem::Kind(header.flags)));
        }
        self.use_run(id, bytes, seen)?;
        let mut at = id * u64::from(self.meta.page_size) + PAGE_HEADER as u64;
        let end = id * u64::from(self.meta.page_size) + bytes;
        let mut count = u64::from(header.count);
        if header.count == COUNT_FOLLOWS {
            let mut first = [0; 8];
            self.read(&mut first, at)?;
            count = u64::from_le_bytes(first);
            at += 8;
        }
        if count > (end - at) / 8 {
            return Err(place.fails(Problem::Count(count)));
        }
        let end = at + count * 8;
        let mut chunk = Vec::new();
        while at < end {
            let size = FREELIST_CHUNK.min(end - at);
            chunk.resize(size as usize, 0);
            self.read(&mut chunk, at)?;
            for free in chunk.chunks_exact(8) {
                let free = le64(free, 0);
                let used = self.meta.used;
                if free >= used {
                    return Err(self.place(free).fails(Problem::Outside { used }));
                }
                if !seen.mark(free) {
                    return Err(self.place(free).fails(Problem::Twice));
                }
            }
            at += size;
        }
        Ok(())
    }
}

/// Holds a bit for each page.
struct Seen {
    bits: Vec<u64>,
}

impl Seen {
    /// Notes a page; returns whether it is the first time.
    fn mark(&mut self, id: u64) -> bool {
        let (word, bit) = ((id / 64) as usize, 1 << (id % 64));
        let first = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        first
    }

    fn has(&self, id: u64) -> bool {
        self.bits[(id / 64) as usize] & (1 << (id % 64)) != 0
    }
}
