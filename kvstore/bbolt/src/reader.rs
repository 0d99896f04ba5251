//! Reading a file, trusting nothing in it.
//!
//! What bounds the work on hostile bytes: a page is read only if it lies within
//! the file and is no longer than [`NODE_BYTES_MAX`]; a walk goes at most
//! [`DEPTH_MAX`] deep and, since a tree has every page once, visits at most as
//! many pages as the file has; keys must ascend.

use crate::{
    error::{MetaProblem, Problem, ReadError},
    format::{
        BRANCH, BUCKET_HEADER, ELEMENT, Element, Header, IS_BUCKET, LEAF, META, Meta, PAGE_HEADER,
        PAGE_SIZES, le32, le64,
    },
    source::ReadAt,
};

type Result<T> = std::result::Result<T, ReadError>;

/// The longest run of pages read as one. bbolt splits what is longer than a page
/// down to about two values, and etcd takes requests of 1.5 MiB unless told more.
/// A longer one is refused.
pub const NODE_BYTES_MAX: u64 = 256 << 20;

/// The deepest tree read: with two children at each branch, more keys than there
/// are. A deeper one is refused.
pub const DEPTH_MAX: usize = 64;

/// The most buckets listed; etcd has ten. More are refused.
pub const BUCKETS_MAX: usize = 1024;

/// Is a file open for reading.
#[derive(Debug)]
pub struct Db<R> {
    pub(crate) source: R,
    pub(crate) meta: Meta,
}

impl<R: ReadAt> Db<R> {
    /// Opens a file by the newer of its valid meta pages. Bytes behind the pages in
    /// use, such as etcd's hash, are not looked at.
    pub fn open(source: R) -> Result<Self> {
        let len = source
            .size()
            .map_err(|source| ReadError::Io { offset: 0, source })?;
        let first = meta_at(&source, 0, len);
        // The second page begins where the first says; failing that, where a page
        // size would have it.
        let second = match &first {
            Ok(meta) => meta_at(&source, u64::from(meta.page_size), len),
            Err(_) => (10..=16)
                .map(|power| 1u32 << power)
                .filter(|size| PAGE_SIZES.contains(size))
                .map(|size| (size, meta_at(&source, u64::from(size), len)))
                .find(|(size, meta)| meta.as_ref().is_ok_and(|m| m.page_size == *size))
                .map_or(Err(MetaProblem::Short), |(_, meta)| meta),
        };
        let meta = match (first, second) {
            (Ok(a), Ok(b)) if b.page_size == a.page_size && b.transaction > a.transaction => b,
            (Ok(a), _) => a,
            (Err(_), Ok(b)) => b,
            (Err(problem), Err(_)) => return Err(ReadError::NotBbolt(problem)),
        };
        let page_size = u64::from(meta.page_size);
        if meta.used > len / page_size {
            return Err(ReadError::NotBbolt(MetaProblem::Truncated {
                used: meta.used,
                page_size,
                len,
            }));
        }
        Ok(Self { source, meta })
    }

    /// Returns the bytes of all pages in use, free ones included (bbolt `Tx.Size`).
    pub fn size(&self) -> u64 {
        self.meta.used * u64::from(self.meta.page_size)
    }

    /// Lists the names of the buckets, ascending.
    pub fn buckets(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut entries = self.root_entries()?;
        while let Some(found) = entries.next_any()? {
            if names.len() == BUCKETS_MAX {
                return Err(found.place.fails(Problem::Buckets(BUCKETS_MAX)));
            }
            if !found.is_bucket {
                return Err(found.place.fails(Problem::NotBucket(found.at)));
            }
            names.push(found.key.to_vec());
        }
        Ok(names)
    }

    /// Walks the pairs of a bucket in order; `None` if there is no such bucket.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Entries<'_, R>>> {
        let mut entries = self.root_entries()?;
        while let Some(found) = entries.next_any()? {
            if found.key != name {
                continue;
            }
            let (place, at) = (found.place, found.at);
            if !found.is_bucket || found.value.len() < BUCKET_HEADER {
                return Err(place.fails(Problem::Bucket(at)));
            }
            let root = le64(found.value, 0);
            let start = match root {
                0 => {
                    let page = Page::inline(place, at, &found.value[BUCKET_HEADER..])?;
                    Entries::over(self, page)
                }
                root => Entries::over(self, self.page(root, Vec::new())?),
            };
            return Ok(Some(start));
        }
        Ok(None)
    }

    fn root_entries(&self) -> Result<Entries<'_, R>> {
        Ok(Entries::over(self, self.page(self.meta.root, Vec::new())?))
    }

    pub(crate) fn place(&self, id: u64) -> Place {
        Place {
            page: id,
            offset: id.saturating_mul(u64::from(self.meta.page_size)),
        }
    }

    /// Reads the head of a page and checks what the page itself can be held to.
    /// Returns it with the bytes of the whole run.
    pub(crate) fn header(&self, id: u64) -> Result<(Header, u64)> {
        let place = self.place(id);
        let used = self.meta.used;
        if id >= used {
            return Err(place.fails(Problem::Outside { used }));
        }
        let mut head = [0; PAGE_HEADER];
        self.read(&mut head, place.offset)?;
        let header = Header::decode(&head);
        if header.id != id {
            return Err(place.fails(Problem::Id(header.id)));
        }
        if u64::from(header.overflow) >= used - id {
            return Err(place.fails(Problem::Outside { used }));
        }
        let bytes = (u64::from(header.overflow) + 1) * u64::from(self.meta.page_size);
        Ok((header, bytes))
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.source
            .read_exact_at(buffer, offset)
            .map_err(|source| ReadError::Io { offset, source })
    }

    /// Reads a branch or a leaf into a buffer.
    pub(crate) fn page(&self, id: u64, mut data: Vec<u8>) -> Result<Page> {
        let (header, bytes) = self.header(id)?;
        let place = self.place(id);
        if header.flags != BRANCH && header.flags != LEAF {
            return Err(place.fails(Problem::Kind(header.flags)));
        }
        if bytes > NODE_BYTES_MAX {
            return Err(place.fails(Problem::TooLong(bytes)));
        }
        data.clear();
        // Within the file, as `header` found, and below the limit.
        data.resize(bytes as usize, 0);
        self.read(&mut data, place.offset)?;
        Page::new(place, header, data)
    }
}

fn meta_at(source: &impl ReadAt, page: u64, len: u64) -> std::result::Result<Meta, MetaProblem> {
    let offset = page + PAGE_HEADER as u64;
    if len < offset + META as u64 {
        return Err(MetaProblem::Short);
    }
    let mut bytes = [0; META];
    source
        .read_exact_at(&mut bytes, offset)
        .or(Err(MetaProblem::Short))?;
    Meta::decode(&bytes)
}

/// Names a page for an error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    page: u64,
    offset: u64,
}

impl Place {
    pub(crate) fn fails(self, problem: Problem) -> ReadError {
        ReadError::Corrupt {
            page: self.page,
            offset: self.offset,
            problem,
        }
    }
}

/// Is a branch or a leaf in memory, its table of elements within it.
#[derive(Debug)]
pub(crate) struct Page {
    place: Place,
    pub(crate) branch: bool,
    pub(crate) count: u32,
    data: Vec<u8>,
}

impl Page {
    fn new(place: Place, header: Header, data: Vec<u8>) -> Result<Self> {
        let count = u32::from(header.count);
        if PAGE_HEADER + count as usize * ELEMENT > data.len() {
            return Err(place.fails(Problem::Count(count.into())));
        }
        Ok(Self {
            place,
            branch: header.flags == BRANCH,
            count,
            data,
        })
    }

    /// Wraps the leaf of a small bucket, which lies in an element of another page.
    pub(crate) fn inline(place: Place, at: u32, bytes: &[u8]) -> Result<Self> {
        let Some(head) = bytes.first_chunk::<PAGE_HEADER>() else {
            return Err(place.fails(Problem::Bucket(at)));
        };
        let header = Header::decode(head);
        if header.flags != LEAF {
            return Err(place.fails(Problem::Kind(header.flags)));
        }
        Self::new(place, header, bytes.to_vec())
    }

    pub(crate) fn child(&self, at: u32) -> u64 {
        le64(&self.data, PAGE_HEADER + at as usize * ELEMENT + 8)
    }

    /// Returns an element of a leaf: whether it is a bucket, its key and its value.
    pub(crate) fn leaf(&self, at: u32) -> Result<(bool, &[u8], &[u8])> {
        let start = PAGE_HEADER + at as usize * ELEMENT;
        let element = Element::decode_leaf(&self.data, start);
        let key = start.checked_add(element.pos as usize);
        let value = key.and_then(|key| key.checked_add(element.key_len as usize));
        let end = value.and_then(|value| value.checked_add(element.value_len as usize));
        let (Some(key), Some(value), Some(end)) = (key, value, end) else {
            return Err(self.place.fails(Problem::Element(at)));
        };
        if end > self.data.len() {
            return Err(self.place.fails(Problem::Element(at)));
        }
        let is_bucket = element.flags & IS_BUCKET != 0;
        Ok((is_bucket, &self.data[key..value], &self.data[value..end]))
    }

    /// Checks that the key of a branch's element is within it; nothing else needs it.
    fn check_branch_key(&self, at: u32) -> Result<()> {
        let start = PAGE_HEADER + at as usize * ELEMENT;
        let (pos, len) = (le32(&self.data, start), le32(&self.data, start + 4));
        let end = start as u64 + u64::from(pos) + u64::from(len);
        if end > self.data.len() as u64 {
            return Err(self.place.fails(Problem::Element(at)));
        }
        Ok(())
    }
}

/// Is one pair of a bucket, valid until the next is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// Is one element of a leaf, plain or a bucket.
struct Found<'a> {
    place: Place,
    at: u32,
    is_bucket: bool,
    key: &'a [u8],
    value: &'a [u8],
}

/// Walks a bucket. Holds the pages from its root to one leaf.
#[derive(Debug)]
pub struct Entries<'a, R> {
    db: &'a Db<R>,
    path: Vec<(Page, u32)>,
    last_key: Option<Vec<u8>>,
    pages_left: u64,
    /// The buffer of the page left last, for the next one.
    spare: Vec<u8>,
}

impl<'a, R: ReadAt> Entries<'a, R> {
    fn over(db: &'a Db<R>, root: Page) -> Self {
        Self {
            db,
            path: vec![(root, 0)],
            last_key: None,
            pages_left: db.meta.used,
            spare: Vec::new(),
        }
    }

    /// Returns the next pair, in the order of keys. After an error there is no
    /// sense in asking again.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>> {
        match self.next_any()? {
            None => Ok(None),
            Some(found) if found.is_bucket => Err(found.place.fails(Problem::Nested(found.at))),
            Some(Found { key, value, .. }) => Ok(Some(Entry { key, value })),
        }
    }

    fn next_any(&mut self) -> Result<Option<Found<'_>>> {
        let at = loop {
            let Some((page, at)) = self.path.last_mut() else {
                return Ok(None);
            };
            if *at == page.count {
                if let Some((page, _)) = self.path.pop() {
                    self.spare = page.data;
                }
                continue;
            }
            let here = *at;
            *at += 1;
            if !page.branch {
                break here;
            }
            page.check_branch_key(here)?;
            let child = page.child(here);
            self.descend(child)?;
        };
        let Some((page, _)) = self.path.last() else {
            return Ok(None);
        };
        let (is_bucket, key, value) = page.leaf(at)?;
        match &mut self.last_key {
            Some(last) if key <= last.as_slice() => {
                return Err(page.place.fails(Problem::Order(at)));
            }
            Some(last) => {
                last.clear();
                last.extend_from_slice(key);
            }
            None => self.last_key = Some(key.to_vec()),
        }
        Ok(Some(Found {
            place: page.place,
            at,
            is_bucket,
            key,
            value,
        }))
    }

    fn descend(&mut self, child: u64) -> Result<()> {
        let place = self.db.place(child);
        if self.path.len() == DEPTH_MAX {
            return Err(place.fails(Problem::Depth(DEPTH_MAX)));
        }
        let Some(left) = self.pages_left.checked_sub(1) else {
            return Err(place.fails(Problem::Twice));
        };
        self.pages_left = left;
        let page = self.db.page(child, std::mem::take(&mut self.spare))?;
        self.path.push((page, 0));
        Ok(())
    }
}
