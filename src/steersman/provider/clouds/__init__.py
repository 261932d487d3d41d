"""Models behind the sign-in of a cloud: Azure, Vertex AI and Bedrock. The wires know nothing of credentials."""
