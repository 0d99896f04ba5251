//! Making a file in one pass: sorted pairs in, pages out in order.
//!
//! Leaves are written as they fill; of each level above only the page being
//! filled is held. The two meta pages and the freelist come last, into the room
//! left for them. Pages are filled to nine tenths, as etcd does for keys that
//! only grow (`FillPercent` 0.9), so that what bbolt writes later finds room.

use std::io::{Seek, SeekFrom, Write};

use crate::{
    error::WriteError,
    format::{
        BRANCH, BUCKET_HEADER, ELEMENT, Element, FREELIST, Header, IS_BUCKET, LEAF, META_PAGE,
        Meta, PAGE_HEADER, PAGE_SIZE, branch_element,
    },
};

type Result<T> = std::result::Result<T, WriteError>;

/// Bytes after which a page is closed.
const FILL: usize = PAGE_SIZE * 9 / 10;

/// A bucket up to this size lies in its parent's leaf (bbolt
/// `maxInlineBucketSize`).
const INLINE_MAX: usize = PAGE_SIZE / 4;

/// The longest key and value bbolt takes.
const KEY_MAX: usize = 32768;
const VALUE_MAX: usize = (1 << 31) - 2;

/// A branch keeps this many children back when it is closed, so that the last one
/// of a level has never fewer: bbolt wants two.
const CHILDREN_MIN: usize = 2;

const FREELIST_PAGE: u64 = 2;
const FIRST_PAGE: u64 = 3;

/// Writes a file.
#[derive(Debug)]
pub struct Writer<W> {
    pages: Pages<W>,
    root: Tree,
    bucket: Option<(Vec<u8>, Tree)>,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a file at the start of `out`, which should buffer.
    pub fn new(mut out: W) -> Result<Self> {
        out.write_all(&[0; PAGE_SIZE * FIRST_PAGE as usize])?;
        Ok(Self {
            pages: Pages {
                out,
                next: FIRST_PAGE,
            },
            root: Tree::default(),
            bucket: None,
        })
    }

    /// Ends the bucket before and begins the next; names must ascend.
    pub fn bucket(&mut self, name: &[u8]) -> Result<()> {
        self.end_bucket()?;
        check_key("bucket", self.root.last_key.as_deref(), name)?;
        self.bucket = Some((name.to_vec(), Tree::default()));
        Ok(())
    }

    /// Adds a pair to the bucket; keys must ascend.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (_, tree) = self.bucket.as_mut().ok_or(WriteError::NoBucket)?;
        check_key("key", tree.last_key.as_deref(), key)?;
        if value.len() > VALUE_MAX {
            return Err(WriteError::ValueSize(value.len()));
        }
        tree.put(&mut self.pages, 0, key, value)
    }

    /// Returns the bytes the file has so far.
    pub fn bytes(&self) -> u64 {
        self.pages.next * PAGE_SIZE as u64
    }

    /// Ends the file and returns what it was written to, at its end, and its size.
    pub fn finish(mut self) -> Result<(W, u64)> {
        self.end_bucket()?;
        let root = self.root.finish(&mut self.pages)?;
        let size = self.bytes();
        let meta = Meta {
            page_size: PAGE_SIZE as u32,
            root,
            freelist: FREELIST_PAGE,
            used: self.pages.next,
            transaction: 0,
        };
        let mut out = self.pages.out;
        out.seek(SeekFrom::Start(0))?;
        // A transaction goes to the meta page its number picks, and the next one
        // must take the other.
        for (page, transaction) in [(0, 2), (1, 1)] {
            let meta = Meta {
                transaction,
                ..meta
            };
            let header = header(page, META_PAGE, 0);
            padded(&mut out, &[&header, &meta.encode()])?;
        }
        padded(&mut out, &[&header(FREELIST_PAGE, FREELIST, 0)])?;
        out.seek(SeekFrom::Start(size))?;
        out.flush()?;
        Ok((out, size))
    }

    fn end_bucket(&mut self) -> Result<()> {
        let Some((name, mut tree)) = self.bucket.take() else {
            return Ok(());
        };
        let mut description = vec![0; BUCKET_HEADER];
        if tree.is_small() {
            tree.leaf.encode(0, &mut description);
        } else {
            let root = tree.finish(&mut self.pages)?;
            description[..8].copy_from_slice(&root.to_le_bytes());
        }
        self.root
            .put(&mut self.pages, IS_BUCKET, &name, &description)
    }
}

fn check_key(what: &'static str, last: Option<&[u8]>, key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > KEY_MAX {
        return Err(WriteError::KeySize(key.len()));
    }
    if last.is_some_and(|last| last >= key) {
        return Err(WriteError::Order(what));
    }
    Ok(())
}

fn header(id: u64, flags: u16, count: u16) -> [u8; PAGE_HEADER] {
    let overflow = 0;
    Header {
        id,
        flags,
        count,
        overflow,
    }
    .encode()
}

/// Writes one page: the parts, then zeros.
fn padded(out: &mut impl Write, parts: &[&[u8]]) -> Result<()> {
    let mut page = [0; PAGE_SIZE];
    let mut at = 0;
    for part in parts {
        page[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Ok(out.write_all(&page)?)
}

/// Hands pages out, in order.
#[derive(Debug)]
struct Pages<W> {
    out: W,
    next: u64,
}

impl<W: Write> Pages<W> {
    /// Writes a run of pages whose head lacks its number; returns the number.
    fn write(&mut self, page: &mut Vec<u8>) -> Result<u64> {
        let id = self.next;
        let pages = page.len().div_ceil(PAGE_SIZE);
        page.resize(pages * PAGE_SIZE, 0);
        // A page holds two values at most beyond its first 4 KiB: far below 2^32.
        let overflow = (pages - 1) as u32;
        page[..8].copy_from_slice(&id.to_le_bytes());
        page[12..16].copy_from_slice(&overflow.to_le_bytes());
        self.out.write_all(page)?;
        self.next += pages as u64;
        Ok(id)
    }
}

/// Is the leaf being filled.
#[derive(Debug, Default)]
struct Leaf {
    elements: Vec<Element>,
    /// Keys and values, each key before its value.
    data: Vec<u8>,
}

impl Leaf {
    fn size(&self) -> usize {
        PAGE_HEADER + self.elements.len() * ELEMENT + self.data.len()
    }

    fn first_key(&self) -> &[u8] {
        let len = self.elements.first().map_or(0, |e| e.key_len as usize);
        &self.data[..len]
    }

    /// Appends the page to `out`.
    fn encode(&mut self, id: u64, out: &mut Vec<u8>) {
        // At 16 bytes and more each, they are 255 at most.
        let count = self.elements.len() as u16;
        out.extend_from_slice(&header(id, LEAF, count));
        let mut data = self.elements.len() * ELEMENT;
        for element in &mut self.elements {
            element.pos = data as u32;
            out.extend_from_slice(&element.leaf());
            data += (element.key_len + element.value_len) as usize;
            data -= ELEMENT;
        }
        out.extend_from_slice(&self.data);
    }

    fn clear(&mut self) {
        /// Room kept for the next leaf; what a large value took is given back.
        const KEPT: usize = 16 * PAGE_SIZE;
        self.elements.clear();
        self.data.clear();
        self.data.shrink_to(KEPT);
    }
}

/// Is the branch of one level being filled: keys and children.
#[derive(Debug, Default)]
struct Branch {
    children: Vec<(Vec<u8>, u64)>,
    size: usize,
}

impl Branch {
    /// Removes the first children and makes their page.
    fn take(&mut self, count: usize, page: &mut Vec<u8>) -> Vec<u8> {
        let children: Vec<_> = self.children.drain(..count).collect();
        // The keys bound it: it was closed once it had a page's worth.
        page.extend_from_slice(&header(0, BRANCH, children.len() as u16));
        let mut keys = children.len() * ELEMENT;
        for (key, child) in &children {
            page.extend_from_slice(&branch_element(keys as u32, key.len() as u32, *child));
            keys += key.len();
            keys -= ELEMENT;
        }
        for (key, _) in &children {
            page.extend_from_slice(key);
            self.size -= ELEMENT + key.len();
        }
        children
            .into_iter()
            .next()
            .map_or(Vec::new(), |(key, _)| key)
    }
}

/// Is one bucket's tree while it grows from the left.
#[derive(Debug, Default)]
struct Tree {
    leaf: Leaf,
    /// From the leaves up. There is one as soon as a page below it was written.
    branches: Vec<Branch>,
    last_key: Option<Vec<u8>>,
    page: Vec<u8>,
}

impl Tree {
    fn is_small(&self) -> bool {
        self.branches.is_empty() && self.leaf.size() <= INLINE_MAX
    }

    fn put<W: Write>(
        &mut self,
        pages: &mut Pages<W>,
        flags: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let size = ELEMENT + key.len() + value.len();
        if !self.leaf.elements.is_empty() && self.leaf.size() + size > FILL {
            self.close_leaf(pages)?;
        }
        self.leaf.elements.push(Element {
            flags,
            pos: 0,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
        });
        self.leaf.data.extend_from_slice(key);
        self.leaf.data.extend_from_slice(value);
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    fn close_leaf<W: Write>(&mut self, pages: &mut Pages<W>) -> Result<()> {
        let key = self.leaf.first_key().to_vec();
        let id = self.write_leaf(pages)?;
        self.add_child(pages, 0, key, id)
    }

    fn write_leaf<W: Write>(&mut self, pages: &mut Pages<W>) -> Result<u64> {
        self.page.clear();
        self.page.shrink_to(16 * PAGE_SIZE);
        self.leaf.encode(0, &mut self.page);
        self.leaf.clear();
        pages.write(&mut self.page)
    }

    fn add_child<W: Write>(
        &mut self,
        pages: &mut Pages<W>,
        level: usize,
        key: Vec<u8>,
        child: u64,
    ) -> Result<()> {
        if level == self.branches.len() {
            self.branches.push(Branch::default());
        }
        let branch = &mut self.branches[level];
        branch.size += ELEMENT + key.len();
        branch.children.push((key, child));
        let count = branch.children.len();
        if PAGE_HEADER + branch.size > FILL && count >= 2 * CHILDREN_MIN {
            self.close_branch(pages, level, count - CHILDREN_MIN)?;
        }
        Ok(())
    }

    fn close_branch<W: Write>(
        &mut self,
        pages: &mut Pages<W>,
        level: usize,
        count: usize,
    ) -> Result<()> {
        self.page.clear();
        let key = self.branches[level].take(count, &mut self.page);
        let id = pages.write(&mut self.page)?;
        self.add_child(pages, level + 1, key, id)
    }

    /// Writes what is left and returns the page of the root.
    fn finish<W: Write>(&mut self, pages: &mut Pages<W>) -> Result<u64> {
        if self.branches.is_empty() {
            return self.write_leaf(pages);
        }
        self.close_leaf(pages)?;
        let mut level = 0;
        while level + 1 < self.branches.len() || self.branches[level].children.len() > 1 {
            let count = self.branches[level].children.len();
            self.close_branch(pages, level, count)?;
            level += 1;
        }
        Ok(self.branches[level].children[0].1)
    }
}
