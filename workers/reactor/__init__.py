"""The only package that touches the kernel's event interfaces: the native reactor under asyncio."""
