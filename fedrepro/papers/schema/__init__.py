"""The format of papers/<paper>/paper.toml and tuned.json, part by part."""
